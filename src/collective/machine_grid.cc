// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/machine_grid.h"

#include <algorithm>
#include <map>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/log.h"

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
  const auto [fewest, most] = std::minmax_element(
      rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  grid.num_columns = fewest->size();
  grid.most_beside = most->size();
  grid.machine = row_of.at(machines[static_cast<std::size_t>(rank)]);
  grid.beside = rows[grid.machine];
  grid.place = static_cast<std::size_t>(std::find(grid.beside.begin(), grid.beside.end(), rank) -
                                        grid.beside.begin());
  for (const std::vector<int>& row : rows) {
    if (grid.place < grid.num_columns) grid.column.push_back(row[grid.place]);
    grid.sources.push_back(row[grid.place % row.size()]);
  }
  for (std::size_t distance = 1; distance < rows.size(); ++distance) {
    const std::vector<int>& row = rows[(grid.machine + distance) % rows.size()];
    const bool is_before = distance + 1 == rows.size();
    for (std::size_t place = grid.place; place < row.size(); place += grid.beside.size()) {
      grid.targets.push_back(row[place]);
      if (is_before && place >= grid.num_columns) grid.outsiders.push_back(row[place]);
    }
  }
  grid.num_crossings = *std::max_element(crossings.begin(), crossings.end());
  return grid;
}

bool is_anybody_strict(Cluster& cluster, const Deadline& deadline) {
  bool is_strict = false;
  for (const std::string& theirs :
       cluster.all_gather_bytes(environment().strict ? "strict" : "", deadline)) {
    is_strict |= !theirs.empty();
  }
  return is_strict;
}

void warn_of_messages(const std::string& why) {
  log_once("no shared memory", LogSeverity::WARNING,
           "workers on one machine exchange messages, since they cannot share memory: " + why);
}

}  // namespace crossdevice::detail
