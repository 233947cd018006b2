// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/machine_grid.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {

MachineGrid make_machine_grid(std::span<const int> machines, int rank) {
  std::vector<std::vector<int>> rows;
  std::map<int, std::size_t> row_of;
  std::vector<std::size_t> crossings;
  for (std::size_t each = 0; each < machines.size(); ++each) {
    const auto [entry, is_new] = row_of.emplace(machines[each], rows.size());
    if (is_new) {
      rows.emplace_back();
      crossings.push_back(0);
    }
    rows[entry->second].push_back(static_cast<int>(each));
    if (machines[(each + 1) % machines.size()] != machines[each]) ++crossings[entry->second];
  }
  MachineGrid grid;
  grid.num_machines = rows.size();
  grid.num_beside = rows[0].size();
  for (const std::vector<int>& row : rows) {
    if (row.size() == grid.num_beside) continue;
    throw ValueError(fmt::format("machines have {} and {} workers", grid.num_beside, row.size()));
  }
  grid.machine = row_of.at(machines[static_cast<std::size_t>(rank)]);
  grid.beside = rows[grid.machine];
  grid.place = static_cast<std::size_t>(std::find(grid.beside.begin(), grid.beside.end(), rank) -
                                        grid.beside.begin());
  grid.column.reserve(rows.size());
  for (const std::vector<int>& row : rows) grid.column.push_back(row[grid.place]);
  grid.num_crossings = *std::max_element(crossings.begin(), crossings.end());
  return grid;
}

}  // namespace crossdevice::detail
