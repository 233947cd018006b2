// SPDX-License-Identifier: Apache-2.0
/// Measures MPI_Allreduce of the MPI that this is compiled with, started by its mpirun. With MALLOC_MMAP_MAX_=0 in the environment the C
/// library keeps what MPI allocates and frees in every call: "allocations kept".
#include <climits>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <mpi.h>

#include "collective/meeting.h"
#include "collective/sample.h"
#include "collective/team.h"
#include "peers/peer.h"
#include "support/program.h"

namespace {

using namespace crossdevice::bench;  // NOLINT(google-build-using-namespace): the program's own
namespace programs = crossdevice::programs;

#ifdef OPEN_MPI
constexpr const char* kName = "openmpi";
#else
constexpr const char* kName = "mpich";
#endif

int as_count(std::size_t count) {
  if (count > INT_MAX) throw std::runtime_error("more elements than MPI counts");
  return static_cast<int>(count);
}

class MpiMeeting : public Meeting {
 public:
  void line_up() override {
    for (int i = 0; i < kReductionsPerLineUp; ++i) {
      float token = 0;
      MPI_Allreduce(MPI_IN_PLACE, &token, 1, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
    }
  }
  [[nodiscard]] std::vector<std::string> all_gather_bytes(std::string_view mine) override {
    int num_workers = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &num_workers);
    const auto num = static_cast<std::size_t>(num_workers);
    const int length = as_count(mine.size());
    std::vector<int> lengths(num);
    MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD);
    std::vector<int> begins(num, 0);
    for (std::size_t r = 1; r < num; ++r) begins[r] = begins[r - 1] + lengths[r - 1];
    std::string all(
        static_cast<std::size_t>(begins.back()) + static_cast<std::size_t>(lengths.back()), '\0');
    MPI_Allgatherv(mine.data(), length, MPI_BYTE, all.data(), lengths.data(), begins.data(),
                   MPI_BYTE, MPI_COMM_WORLD);
    std::vector<std::string> pieces;
    pieces.reserve(num);
    for (std::size_t r = 0; r < num; ++r) {
      pieces.push_back(
          all.substr(static_cast<std::size_t>(begins[r]), static_cast<std::size_t>(lengths[r])));
    }
    return pieces;
  }
};

/// Hosts are what MPI takes for them: those that share memory.
TeamPlace find_place() {
  int rank = 0;
  int num_workers = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &num_workers);
  MPI_Comm local = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local);
  int local_rank = 0;
  int num_local = 0;
  MPI_Comm_rank(local, &local_rank);
  MPI_Comm_size(local, &num_local);
  MPI_Comm_free(&local);
  int num_hosts = local_rank == 0 ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &num_hosts, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return {.rank = static_cast<std::size_t>(rank),
          .num_workers = static_cast<std::size_t>(num_workers),
          .num_hosts = static_cast<std::size_t>(num_hosts),
          .num_local_workers = static_cast<std::size_t>(num_local)};
}

/// Across hosts MPICH's MPI_Finalize may wait for ever, one process for UCX to close a connection, the others, which would have to take part, for the
/// end of that one. The rows are written then, so the first ends all.
void end_all([[maybe_unused]] int code) {
#ifndef OPEN_MPI
  const TeamPlace place = find_place();
  MPI_Barrier(MPI_COMM_WORLD);
  if (place.num_hosts > 1 && place.rank == 0) MPI_Abort(MPI_COMM_WORLD, code);
#endif
  MPI_Finalize();
}

/// The first line of what the library says of itself, without what follows a comma.
std::string version() {
  std::vector<char> text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  std::string first(text.data());
  first = first.substr(0, first.find_first_of(",\n"));
  for (char& c : first) c = c == '\t' ? ' ' : c;
  return first;
}

std::string how_set_up() {
  const char* const most = std::getenv("MALLOC_MMAP_MAX_");
  return most != nullptr && std::string_view(most) == "0" ? "allocations kept" : "as it comes";
}

void all_reduce(const float* input, float* output, std::size_t count) {
  const int status = MPI_Allreduce(input == output ? MPI_IN_PLACE : input, output, as_count(count),
                                   MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (status != MPI_SUCCESS) throw std::runtime_error("MPI_Allreduce failed");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int code = programs::run_program(std::string("peer-") + kName, [&] {
    Peer peer{.name = kName,
              .algorithm = how_set_up(),
              .version = version(),
              .team = Team(std::make_shared<MpiMeeting>(), find_place()),
              .all_reduce = all_reduce};
    return measure_peer(peer, argc, argv);
  });
  // Who fails must not wait in MPI_Finalize for those who wait for it.
  if (code >= programs::kExitBadArguments) MPI_Abort(MPI_COMM_WORLD, code);
  end_all(code);
  return code;
}
