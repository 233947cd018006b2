// SPDX-License-Identifier: Apache-2.0
/// Workers on machines with equally many each, as rows and columns.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace crossdevice::detail {

/// Machines in the order of their lowest ranks.
struct MachineGrid {
  std::size_t num_machines = 0;
  std::size_t num_beside = 0;  ///< workers on each
  std::size_t machine = 0;     ///< of the worker that asks
  std::size_t place = 0;       ///< its place there, by rank
  std::vector<int> beside;     ///< ranks on its machine, ascending
  std::vector<int> column;     ///< by machine, the ranks that have its place
  /// How many links of a ring in the order of ranks leave the machine that most leave.
  std::size_t num_crossings = 0;
};

/// `machines`: a number for each rank; not empty.
///
/// Errors   ValueError: machines have not equally many workers.
[[nodiscard]] MachineGrid make_machine_grid(std::span<const int> machines, int rank);

}  // namespace crossdevice::detail
