// SPDX-License-Identifier: Apache-2.0
/// What the guide's pieces of code take for granted: two devices, some gradients, a model, a cluster.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <crossdevice/collective/schedule.h>
#include <crossdevice/crossdevice.h>

#include "support/verify_schedule.h"

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

namespace crossdevice::guide {

namespace cd = crossdevice;
using cd::ReduceOp;

/// One number that learns.
struct Model {
  float weight = 1.0F;
  std::vector<cd::Tensor> backward(float batch) const {
    return {cd::Tensor::copy_of(std::span(&batch, 1), {1}, "CPU:0")};
  }
  void apply(const std::vector<cd::Tensor>& gradients) {
    weight -= gradients[0].span<const float>()[0];
  }
  [[nodiscard]] cd::Tensor loss() const {
    return cd::Tensor::copy_of(std::span(&weight, 1), cd::Shape{}, "CPU:0");
  }
};

/// What the guide calls an algorithm brings everybody's contribution to everybody, once.
inline void require_all_reduce(const cd::Schedule& schedule) {
  const std::string wrong = cd::testing::verify_all_reduce(schedule);
  if (!wrong.empty()) throw std::logic_error("not an all-reduce: " + wrong);
}

/// Whether a piece finds a cluster or makes one.
enum class Joins : bool { BEFORE, BY_ITSELF };

/// Made anew for every piece.
struct Surroundings {
  virtual ~Surroundings() = default;
  virtual void run() = 0;
  /// After run().
  virtual void finish() {
    if (cluster != nullptr) cluster->barrier(50);
  }

  explicit Surroundings(Joins joins) {
    if (joins == Joins::BEFORE) cluster = cd::Cluster::join({.timeout_seconds = 50});
    for (int i = 0; i < 3; ++i) {
      gradients.push_back(cd::PerReplica{cd::Tensor::zeros(cd::DType::FLOAT32, {1000}, "CPU:0"),
                                         cd::Tensor::zeros(cd::DType::FLOAT32, {1000}, "CPU:1")});
    }
  }

  std::vector<cd::PerReplica> gradients;
  cd::HierarchicalCopyAllReduce ops;
  std::vector<Model> models{2};
  std::vector<float> batches{1.0F, 3.0F};
  std::size_t layers = 3;
  void backward(std::size_t) {}
  void apply(std::size_t) {}
  void train(cd::ReplicaContext& context) {
    (void)context.all_reduce(ReduceOp::SUM, cd::Tensor::zeros(cd::DType::FLOAT32, {8}, "CPU:0"));
  }

  /// Every worker's; the pieces run by crossdevice-run.
  std::shared_ptr<cd::Cluster> cluster;
  std::vector<float> a = std::vector<float>(4000);
  std::vector<float> shard = std::vector<float>(1000);
  int my_number = cd::detect_cluster_resolver()->identity().rank;
};

struct Piece {
  std::string_view name;
  std::unique_ptr<Surroundings> (*make)();
};

template <class T>
std::unique_ptr<Surroundings> make() {
  return std::make_unique<T>();
}

/// Runs the piece that the command line names.
inline int run_piece(int argc, char** argv, std::span<const Piece> pieces) {
  try {
    for (const Piece& piece : pieces) {
      if (argc != 2 || piece.name != argv[1]) continue;
      const std::unique_ptr<Surroundings> surroundings = piece.make();
      surroundings->run();
      surroundings->finish();
      return 0;
    }
    std::fprintf(stderr, "expected the name of a piece\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}

}  // namespace crossdevice::guide
