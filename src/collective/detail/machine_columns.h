// SPDX-License-Identifier: Apache-2.0
/// How the columns of a grid of machines reduce: who talks to whom, and by which algorithm.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "crossdevice/collective/all_reduce_choice.h"

#include "collective/detail/machine_grid.h"
#include "collective/detail/program_cache.h"

namespace crossdevice::detail {

/// Whether each machine has something to say to each other one.
[[nodiscard]] bool is_mesh(const MachineGrid& grid);

/// Whom a worker talks to on other machines; who is in another's list has that one in its own. `programs`: of its column.
[[nodiscard]] std::vector<int> peers_of_columns(const MachineGrid& grid, ProgramCache& programs);

/// What all columns can do at the same time: a machine's link, which a ring of all workers crosses some times, is shared by its workers.
[[nodiscard]] AllReduceTuning column_tuning(const AllReduceTuning& all, const MachineGrid& grid);

/// A part takes no short cut for what fits into one message: what is taken in its place, first.
[[nodiscard]] std::vector<AllReduceCandidate> rank_column_algorithms(const MachineGrid& grid,
                                                                     std::size_t size_bytes,
                                                                     const AllReduceTuning& tuning);

/// "2 workers on each of 3 machines", "3 to 4 workers on each of 2 machines".
[[nodiscard]] std::string describe_rows(const MachineGrid& grid);

}  // namespace crossdevice::detail
