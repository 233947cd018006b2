// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/machine_grid.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossdevice::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(MachineGridTest, RowsAreMachinesInTheOrderOfTheirLowestRanks) {
  const std::vector<int> machines = {7, 3, 3, 7};
  const MachineGrid grid = make_machine_grid(machines, 2);
  EXPECT_EQ(grid.num_machines, 2U);
  EXPECT_EQ(grid.num_columns, 2U);
  EXPECT_EQ(grid.most_beside, 2U);
  EXPECT_EQ(grid.machine, 1U);
  EXPECT_EQ(grid.place, 1U);
  EXPECT_THAT(grid.beside, ElementsAre(1, 2));
  EXPECT_THAT(grid.column, ElementsAre(3, 2));
  EXPECT_THAT(grid.sources, ElementsAre(3, 2));
  EXPECT_THAT(grid.targets, ElementsAre(3));
  EXPECT_EQ(grid.num_crossings, 1U);
}

TEST(MachineGridTest, WhoIsInNoColumnHearsFromWhoHasItsPlaceCountedRound) {
  const std::vector<int> machines = {0, 0, 0, 1, 1};
  EXPECT_THAT(make_machine_grid(machines, 2).column, IsEmpty());
  EXPECT_THAT(make_machine_grid(machines, 2).sources, ElementsAre(2, 3));
  EXPECT_THAT(make_machine_grid(machines, 2).targets, IsEmpty());
  EXPECT_THAT(make_machine_grid(machines, 3).targets, ElementsAre(0, 2));
  EXPECT_THAT(make_machine_grid(machines, 3).column, ElementsAre(0, 3));
  EXPECT_THAT(make_machine_grid(machines, 4).targets, ElementsAre(1));
  EXPECT_TRUE(make_machine_grid(machines, 2).is_outsider());
  EXPECT_EQ(make_machine_grid(machines, 2).informant(), 3);
  EXPECT_THAT(make_machine_grid(machines, 3).outsiders, ElementsAre(2));
  EXPECT_THAT(make_machine_grid(machines, 4).outsiders, IsEmpty());
}

TEST(MachineGridTest, EverybodyHearsFromEachMachineOnceAndWhoIsHeardKnows) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<int> machines(2 + random() % 12);
    for (int& each : machines) each = static_cast<int>(random() % 4);
    std::vector<MachineGrid> grids;
    for (std::size_t rank = 0; rank < machines.size(); ++rank) {
      grids.push_back(make_machine_grid(machines, static_cast<int>(rank)));
    }
    for (std::size_t rank = 0; rank < machines.size(); ++rank) {
      const MachineGrid& grid = grids[rank];
      std::set<int> heard_machines;
      for (const int source : grid.sources) {
        heard_machines.insert(machines[static_cast<std::size_t>(source)]);
        if (machines[static_cast<std::size_t>(source)] == machines[rank]) {
          EXPECT_EQ(source, static_cast<int>(rank));
          continue;
        }
        const std::vector<int>& targets = grids[static_cast<std::size_t>(source)].targets;
        EXPECT_EQ(std::count(targets.begin(), targets.end(), static_cast<int>(rank)), 1);
      }
      EXPECT_EQ(heard_machines.size(), grid.num_machines);
      EXPECT_EQ(grid.sources.size(), grid.num_machines);
      for (const int target : grid.targets) {
        const std::vector<int>& sources = grids[static_cast<std::size_t>(target)].sources;
        EXPECT_EQ(sources[grid.machine], static_cast<int>(rank));
      }
      EXPECT_EQ(grid.is_outsider(), grid.place >= grid.num_columns);
      if (grid.num_machines == 1) continue;
      for (const int outsider : grid.outsiders) {
        EXPECT_TRUE(grids[static_cast<std::size_t>(outsider)].is_outsider());
        EXPECT_EQ(grids[static_cast<std::size_t>(outsider)].informant(), static_cast<int>(rank));
      }
      if (!grid.is_outsider()) continue;
      const std::vector<int>& told = grids[static_cast<std::size_t>(grid.informant())].outsiders;
      EXPECT_EQ(std::count(told.begin(), told.end(), static_cast<int>(rank)), 1);
    }
  }
}

}  // namespace
}  // namespace crossdevice::detail
