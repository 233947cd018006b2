// SPDX-License-Identifier: Apache-2.0
/// Workers on machines as rows, and columns through all of them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "crossdevice/comm/cluster.h"

namespace crossdevice::detail {

/// Machines in the order of their lowest ranks. There are as many columns as the machine with the fewest workers has; where another one has more, its last
/// ones are in none.
struct MachineGrid {
  std::size_t num_machines = 0;
  std::size_t num_columns = 0;  ///< as many as there are workers where the fewest are
  std::size_t most_beside = 0;  ///< where the most are
  std::size_t machine = 0;      ///< of the worker that asks
  std::size_t place = 0;        ///< its place there, by rank
  std::vector<int> beside;      ///< ranks on its machine, ascending
  std::vector<int> column;      ///< by machine, the ranks that have its place; empty: it is in none
  /// By machine, from whom it hears what that machine has: from the worker at its place, counted round where there are fewer.
  std::vector<int> sources;
  /// Who hears from it what this machine has: of the next machine first.
  std::vector<int> targets;
  /// Of these, who is in no column and on the machine before this one: nobody else would send it anything.
  std::vector<int> outsiders;
  [[nodiscard]] bool is_outsider() const { return column.empty(); }
  /// Whose outsider it is, if it is one.
  [[nodiscard]] int informant() const { return sources[(machine + 1) % num_machines]; }
  /// How many links of a ring in the order of ranks leave the machine that most leave.
  std::size_t num_crossings = 0;
};

/// `machines`: a number for each rank; not empty.
[[nodiscard]] MachineGrid make_machine_grid(std::span<const int> machines, int rank);

/// Whether one of them must not go another way than it should (CROSSDEVICE_STRICT): where they cannot share memory, their environments may differ, too.
///
/// Ranks    collective.
[[nodiscard]] bool is_anybody_strict(Cluster& cluster, const Deadline& deadline);
/// Says once that those of one machine go another way than through shared memory.
void warn_of_messages(const std::string& why);

}  // namespace crossdevice::detail
