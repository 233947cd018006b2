// SPDX-License-Identifier: Apache-2.0
/// MPI for the guide's pieces of code where crossdevice-run starts them; with the real one they run where it is installed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <crossdevice/crossdevice.h>

// MPI's names, as far as the guide has them; a cluster of the same workers does what they say.
enum MpiComm : std::uint8_t { MPI_COMM_WORLD };
enum MpiType : std::uint8_t { MPI_BYTE };
inline crossdevice::Cluster& mpi_world() {
  static const std::shared_ptr<crossdevice::Cluster> world =
      crossdevice::Cluster::join({.timeout_seconds = 50});
  return *world;
}
inline void MPI_Comm_rank(MpiComm, int* rank) { *rank = mpi_world().rank(); }
inline void MPI_Comm_size(MpiComm, int* size) { *size = mpi_world().num_workers(); }
inline void MPI_Allgather(const void* mine, int size, MpiType, void* all, int, MpiType, MpiComm) {
  const auto num_bytes = static_cast<std::size_t>(size);
  auto* to = static_cast<char*>(all);
  for (const std::string& each : mpi_world().all_gather_bytes(
           {static_cast<const char*>(mine), num_bytes}, /*timeout_seconds=*/50)) {
    to = std::copy_n(each.data(), num_bytes, to);
  }
}
