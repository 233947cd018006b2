// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/schedule_program.h"

#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/ring.h"
#include "crossdevice/collective/schedule_traffic.h"
#include "crossdevice/core/error.h"

#include "collective/scheduled_reduce_fixture.h"
#include "support/program_machine.h"

namespace crossdevice {
namespace {

using testing::kMakers;

TEST(ScheduleProgram, ReadsLikeThis) {
  const Schedule ring = ring_schedule(4, ring_orders(testing::Lists{testing::first(2)}, 1));
  EXPECT_EQ(compile_schedule(ring, 0, 100).to_string(),
            "0: send [2, 4) of the input to 1\n"
            "1: receive [0, 2) from 1 to combine\n"
            "2: combine [0, 2) = 1 own of the input, complete, after 1\n"
            "3: send [0, 2) to 1, after 2\n"
            "4: receive [2, 4) from 1, after 0\n");
}

TEST(ScheduleProgram, StepsAreCutIntoPieces) {
  const Schedule ring = ring_schedule(6, ring_orders(testing::Lists{testing::first(2)}, 1));
  EXPECT_EQ(compile_schedule(ring, 1, 2).to_string(),
            "0: receive [3, 5) from 0 to combine\n"
            "1: combine [3, 5) = 0 own of the input, complete, after 0\n"
            "2: receive [5, 6) from 0 to combine\n"
            "3: combine [5, 6) = 2 own of the input, complete, after 2\n"
            "4: send [0, 2) of the input to 0\n"
            "5: send [2, 3) of the input to 0\n"
            "6: receive [0, 2) from 0, after 4\n"
            "7: receive [2, 3) from 0, after 5\n"
            "8: send [3, 5) to 0, after 1\n"
            "9: send [5, 6) to 0, after 3\n");
}

class ScheduleProgramTest : public ::testing::TestWithParam<testing::Maker> {};
INSTANTIATE_TEST_SUITE_P(Makers, ScheduleProgramTest, ::testing::ValuesIn(kMakers),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(ScheduleProgramTest, InAnyOrderGivesWhatTheScheduleGives) {
  unsigned seed = 1;
  for (const std::size_t n : {1UL, 2UL, 3UL, 4UL, 5UL, 8UL}) {
    for (const std::size_t count : {0UL, 1UL, 7UL, 16UL}) {
      const Schedule schedule = GetParam().make(n, count);
      std::vector<std::vector<std::string>> rows(n);
      for (std::size_t p = 0; p < n; ++p) {
        rows[p].assign(count, std::string(1, static_cast<char>('a' + p)));
      }
      for (const ScheduleStep& step : schedule.steps) {
        for (std::size_t e = step.range.begin; e < step.range.end(); ++e) {
          std::string result;
          for (const std::size_t source : step.sources) result += rows[source][e];
          rows[step.target][e] = result;
        }
      }
      for (const std::size_t piece : {1UL, 3UL, 100UL}) {
        testing::ProgramMachine machine(schedule, piece, ++seed);
        ASSERT_EQ(machine.run(), "") << n << " participants, " << count << " elements";
        for (std::size_t p = 0; p < n; ++p) EXPECT_EQ(machine.row(p), rows[p]);
      }
    }
  }
}

TEST_P(ScheduleProgramTest, SendsAsManyElementsAsTheSchedule) {
  const Schedule schedule = GetParam().make(6, 1000);
  const std::vector<RankTraffic> traffic = schedule_traffic(schedule);
  for (std::size_t p = 0; p < 6; ++p) {
    std::size_t sent = 0;
    std::size_t received = 0;
    const ScheduleProgram program = compile_schedule(schedule, p, 17);
    for (const ProgramTask& task : program.tasks) {
      EXPECT_LE(task.range.count, 17U);
      if (task.kind == ProgramTask::Kind::SEND) sent += task.range.count;
      if (task.kind == ProgramTask::Kind::RECEIVE) received += task.range.count;
    }
    EXPECT_EQ(sent, traffic[p].elements_sent);
    EXPECT_EQ(received, traffic[p].elements_received);
    EXPECT_FALSE(program.divides_at_end);
  }
}

TEST(ScheduleProgram, AStepThatIsPartlyCompleteIsNoted) {
  Schedule schedule{.num_participants = 2, .num_elements = 4, .steps = {}};
  schedule.add(ScheduleStep::Kind::REDUCE, {.begin = 0, .count = 2}, 0, {0, 1});
  schedule.add(ScheduleStep::Kind::REDUCE, {.begin = 0, .count = 4}, 1, {0});
  EXPECT_TRUE(compile_schedule(schedule, 0, 100).divides_at_end);
  EXPECT_TRUE(compile_schedule(schedule, 1, 100).divides_at_end);
  EXPECT_TRUE(compile_schedule(schedule, 0, 100).starts_with_copy);
  EXPECT_FALSE(compile_schedule(schedule, 1, 100).starts_with_copy);
}

TEST(ScheduleProgram, RefusesWhatCannotBe) {
  const Schedule schedule{.num_participants = 2, .num_elements = 4, .steps = {}};
  EXPECT_THROW((void)compile_schedule(schedule, 2, 1), ValueError);
  EXPECT_THROW((void)compile_schedule(schedule, 0, 0), ValueError);
}

}  // namespace
}  // namespace crossdevice
