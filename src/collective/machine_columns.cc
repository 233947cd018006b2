// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/machine_columns.h"

#include <algorithm>

#include <fmt/format.h>

#include "collective/detail/transport_group.h"

namespace crossdevice::detail {
namespace {

using Kind = ProgramKey::Kind;

}  // namespace

bool is_mesh(const MachineGrid& grid) {
  return grid.num_machines <= static_cast<std::size_t>(TransportGroup::kMeshRanks);
}

std::vector<int> peers_of_columns(const MachineGrid& grid, ProgramCache& programs) {
  std::vector<int> peers;
  if (is_mesh(grid)) {
    peers = grid.targets;
    for (std::size_t machine = 0; machine < grid.num_machines; ++machine) {
      if (machine != grid.machine) peers.push_back(grid.sources[machine]);
    }
    return peers;
  }
  peers = grid.outsiders;
  if (grid.is_outsider()) {
    peers.push_back(grid.informant());
    return peers;
  }
  for (const Kind kind : {Kind::ALL_REDUCE_RING, Kind::ALL_REDUCE_HALVING_DOUBLING}) {
    const std::size_t elements =
        grid.num_machines * grid.num_machines;  // so that nobody is left out
    for (const std::size_t peer : programs.find({.kind = kind, .num_elements = elements})->peers) {
      peers.push_back(static_cast<int>(peer));
    }
  }
  return peers;
}

AllReduceTuning column_tuning(const AllReduceTuning& all, const MachineGrid& grid) {
  AllReduceTuning tuning = all;
  if (!all.links.has_value()) return tuning;
  const double bytes_per_second = all.links->ring_bytes_per_second *
                                  static_cast<double>(grid.num_crossings) /
                                  static_cast<double>(grid.num_columns);
  tuning.links = LinkModel{.latency_seconds = all.links->latency_seconds,
                           .ring_bytes_per_second = bytes_per_second,
                           .mesh_bytes_per_second = bytes_per_second,
                           .message_seconds = all.links->message_seconds};
  return tuning;
}

std::vector<AllReduceCandidate> rank_column_algorithms(const MachineGrid& grid,
                                                       std::size_t size_bytes,
                                                       const AllReduceTuning& tuning) {
  std::vector<AllReduceCandidate> candidates =
      rank_all_reduce_algorithms(grid.num_machines, size_bytes, is_mesh(grid), tuning);
  const Kind kind = kind_of(candidates[0].algorithm);
  std::erase_if(candidates,
                [](const AllReduceCandidate& each) { return is_short_cut(each.algorithm); });
  const auto taken = std::find_if(
      candidates.begin(), candidates.end(),
      [kind](const AllReduceCandidate& each) { return kind_of(each.algorithm) == kind; });
  std::rotate(candidates.begin(), taken, taken + 1);
  return candidates;
}

std::string describe_rows(const MachineGrid& grid) {
  if (grid.num_columns == grid.most_beside) {
    return fmt::format("{} workers on each of {} machines", grid.most_beside, grid.num_machines);
  }
  return fmt::format("{} to {} workers on each of {} machines", grid.num_columns, grid.most_beside,
                     grid.num_machines);
}

}  // namespace crossdevice::detail
