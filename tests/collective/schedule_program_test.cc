// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/schedule_program.h"

#include <cstddef>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/ring.h"
#include "crossdevice/collective/schedule_traffic.h"
#include "crossdevice/core/error.h"

#include "collective/scheduled_reduce_fixture.h"

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

/// Runs all participants' programs on rows of contributions, always one task that may run, chosen at random: whatever the order, the
/// result must be the schedule's.
class Machine {
 public:
  Machine(const Schedule& schedule, std::size_t piece, unsigned seed) : random_(seed) {
    for (std::size_t p = 0; p < schedule.num_participants; ++p) {
      Rank& rank = ranks_.emplace_back();
      rank.program = compile_schedule(schedule, p, piece);
      rank.input.assign(schedule.num_elements, std::string(1, static_cast<char>('a' + p)));
      rank.row.assign(schedule.num_elements, "-");
      if (rank.program.starts_with_copy) rank.row = rank.input;
      for (const Interval& range : rank.program.unwritten) {
        for (std::size_t e = range.begin; e < range.end(); ++e) rank.row[e] = rank.input[e];
      }
      for (const ProgramTask& task : rank.program.tasks) {
        rank.dependencies.push_back(task.num_dependencies);
      }
      rank.buffers.resize(rank.program.tasks.size());
      rank.is_done.resize(rank.program.tasks.size());
    }
  }

  /// Whether everything has run in the end.
  bool run() {
    for (;;) {
      std::vector<std::pair<std::size_t, std::size_t>> possible;
      for (std::size_t p = 0; p < ranks_.size(); ++p) {
        for (std::size_t i = 0; i < ranks_[p].is_done.size(); ++i) {
          if (can_run(p, i)) possible.emplace_back(p, i);
        }
      }
      if (possible.empty()) break;
      const auto [p, i] = possible[random_() % possible.size()];
      run_task(p, i);
    }
    for (const Rank& rank : ranks_) {
      for (const bool done : rank.is_done) {
        if (!done) return false;
      }
    }
    return true;
  }
  [[nodiscard]] const std::vector<std::string>& row(std::size_t participant) const {
    return ranks_[participant].row;
  }

 private:
  struct Rank {
    ScheduleProgram program;
    std::vector<std::string> input;
    std::vector<std::string> row;
    std::vector<std::uint32_t> dependencies;
    std::vector<std::vector<std::string>> buffers;
    std::vector<bool> is_done;
  };
  struct Message {
    Interval range;
    std::vector<std::string> elements;
  };

  /// Messages from one participant to another leave and come in the order of their tasks.
  [[nodiscard]] bool is_first_of_its_kind(const Rank& rank, std::size_t index) const {
    const ProgramTask& task = rank.program.tasks[index];
    for (std::size_t before = 0; before < index; ++before) {
      const ProgramTask& other = rank.program.tasks[before];
      if (!rank.is_done[before] && other.kind == task.kind && other.peer == task.peer) return false;
    }
    return true;
  }
  [[nodiscard]] bool can_run(std::size_t p, std::size_t index) const {
    const Rank& rank = ranks_[p];
    const ProgramTask& task = rank.program.tasks[index];
    if (rank.is_done[index] || rank.dependencies[index] > 0) return false;
    if (task.kind == ProgramTask::Kind::COMBINE) return true;
    if (!is_first_of_its_kind(rank, index)) return false;
    if (task.kind == ProgramTask::Kind::SEND) return true;
    const auto messages = messages_.find({task.peer, p});
    return messages != messages_.end() && !messages->second.empty();
  }
  void run_task(std::size_t p, std::size_t index) {
    Rank& rank = ranks_[p];
    const ProgramTask& task = rank.program.tasks[index];
    const std::vector<std::string>& own = task.reads_input ? rank.input : rank.row;
    switch (task.kind) {
      case ProgramTask::Kind::SEND:
        messages_[{p, task.peer}].push_back(
            {task.range, {own.begin() + at(task.range.begin), own.begin() + at(task.range.end())}});
        break;
      case ProgramTask::Kind::RECEIVE: {
        std::vector<Message>& messages = messages_[{task.peer, p}];
        EXPECT_EQ(messages.front().range, task.range);
        if (task.is_operand) {
          rank.buffers[index] = messages.front().elements;
        } else {
          std::copy(messages.front().elements.begin(), messages.front().elements.end(),
                    rank.row.begin() + at(task.range.begin));
        }
        messages.erase(messages.begin());
        break;
      }
      case ProgramTask::Kind::COMBINE:
        for (std::size_t e = 0; e < task.range.count; ++e) {
          std::string result;
          for (std::uint32_t o = 0; o < task.num_operands; ++o) {
            const std::uint32_t operand = rank.program.operands[task.first_operand + o];
            result += operand == ScheduleProgram::kOwn ? own[task.range.begin + e]
                                                       : rank.buffers[operand][e];
          }
          EXPECT_EQ(task.is_complete, result.size() == ranks_.size());
          rank.row[task.range.begin + e] = result;
        }
        break;
    }
    rank.is_done[index] = true;
    for (std::uint32_t s = 0; s < task.num_successors; ++s) {
      --rank.dependencies[rank.program.successors[task.first_successor + s]];
    }
  }
  static std::ptrdiff_t at(std::size_t element) { return static_cast<std::ptrdiff_t>(element); }

  std::mt19937 random_;
  std::vector<Rank> ranks_;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<Message>> messages_;
};

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
        Machine machine(schedule, piece, ++seed);
        ASSERT_TRUE(machine.run()) << n << " participants, " << count << " elements";
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
