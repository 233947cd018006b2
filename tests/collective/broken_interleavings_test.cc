// SPDX-License-Identifier: Apache-2.0
/// What a DrawnNetwork has to report: programs that lack an edge, members that do not keep to the contract of transfers, groups that stand still.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/collective/schedule_executor.h"
#include "crossdevice/core/deadline.h"

#include "collective/interleaving_cases.h"
#include "support/drawn_network.h"

namespace crossdevice {
namespace {

using ::testing::Contains;
using testing::DrawnNetwork;
using testing::GuardedRow;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = ProgramTask::Kind;

constexpr std::uint64_t kManySeeds = 60;
constexpr std::uint64_t kEnoughSeeds = 2000;  // for what shows in few orders of events

// ---------------------------------------------------------------------------------------------- programs

/// What is reported of `programs` over int32 rows with a seed, in place with every other one; "" where all is well.
std::string run_programs(const Schedule& schedule, std::vector<ScheduleProgram>& programs,
                         std::uint64_t seed) {
  const std::size_t n = programs.size();
  const std::size_t size = schedule.num_elements * sizeof(std::int32_t);
  std::vector<GuardedRow> rows;
  std::vector<GuardedRow> outputs;
  std::vector<const void*> inputs;
  for (std::size_t rank = 0; rank < n; ++rank) {
    rows.emplace_back(size, 1000 * seed + rank);
    outputs.emplace_back(size, 2000 * seed + rank);
  }
  for (const GuardedRow& row : rows) inputs.push_back(row.begin());
  if (seed % 2 == 1) outputs = rows;
  const auto expected = testing::reference_execute(schedule, ReduceOp::SUM, DType::INT32, inputs);
  DrawnNetwork network(n, seed);
  const auto transports = make_drawn_transports(network);
  const std::vector<std::string> errors = network.run([&](std::size_t rank) {
    transports[rank]->connect(testing::peers_of(rank, n), Deadline::never());
    transports[rank]->begin({.kind = "test"});
    const ScheduleJob job{.program = &programs[rank],
                          .dtype = DType::INT32,
                          .input = (seed % 2 == 1 ? outputs : rows)[rank].begin(),
                          .output = outputs[rank].begin()};
    ScheduleExecutor(*transports[rank]).run({&job, 1}, Deadline::never());
  });
  if (!network.violations().empty()) return network.violations()[0];
  for (std::size_t rank = 0; rank < n; ++rank) {
    if (!errors[rank].empty()) return errors[rank];
    if (outputs[rank].bytes() != expected[rank]) return fmt::format("rank {}: wrong result", rank);
  }
  return {};
}

std::vector<ScheduleProgram> compile_all(const Schedule& schedule, std::size_t piece) {
  std::vector<ScheduleProgram> programs;
  for (std::size_t rank = 0; rank < schedule.num_participants; ++rank) {
    programs.push_back(compile_schedule(schedule, rank, piece));
  }
  return programs;
}

struct Edge {
  std::uint32_t before = 0;
  std::uint32_t after = 0;
};

std::vector<Edge> edges_of(const ScheduleProgram& program) {
  std::vector<Edge> edges;
  for (std::uint32_t t = 0; t < program.tasks.size(); ++t) {
    const ProgramTask& task = program.tasks[t];
    for (std::uint32_t s = 0; s < task.num_successors; ++s) {
      edges.push_back({.before = t, .after = program.successors[task.first_successor + s]});
    }
  }
  return edges;
}

void remove_edge(ScheduleProgram& program, const Edge& edge) {
  ProgramTask& before = program.tasks[edge.before];
  const auto begin =
      program.successors.begin() + static_cast<std::ptrdiff_t>(before.first_successor);
  const auto end = begin + static_cast<std::ptrdiff_t>(before.num_successors);
  std::iter_swap(std::find(begin, end, edge.after), end - 1);
  --before.num_successors;
  --program.tasks[edge.after].num_dependencies;
}

/// Whether the other edges say the same, or the order in which sends to one peer begin, or receives.
bool is_implied(const ScheduleProgram& program, const Edge& edge) {
  const std::vector<Edge> edges = edges_of(program);
  std::vector<bool> is_later(program.tasks.size());  // begins when edge.before is done
  std::map<std::size_t, std::uint32_t> last_sends;   // by peer
  std::optional<std::uint32_t> last_receive;
  for (std::uint32_t t = 0; t < program.tasks.size(); ++t) {  // tasks follow what they wait for
    for (const Edge& each : edges) {
      if (each.after != t || (each.before == edge.before && t == edge.after)) continue;
      if (each.before == edge.before || is_later[each.before]) is_later[t] = true;
    }
    const ProgramTask& task = program.tasks[t];
    if (task.kind == Kind::SEND) {
      const auto [last, is_first] = last_sends.try_emplace(task.peer, t);
      if (!is_first && is_later[last->second]) is_later[t] = true;
      last->second = t;
    } else if (task.kind == Kind::RECEIVE) {
      if (last_receive && is_later[*last_receive]) is_later[t] = true;
      last_receive = t;
    }
  }
  return is_later[edge.after];
}

/// A combination must not run before its operands are in buffers: without them the executor has no address to read.
bool is_address(const ScheduleProgram& program, const Edge& edge) {
  return program.tasks[edge.before].kind == Kind::RECEIVE && program.tasks[edge.before].is_operand;
}

class BrokenPrograms : public ::testing::TestWithParam<testing::Maker> {};
INSTANTIATE_TEST_SUITE_P(Makers, BrokenPrograms, ::testing::ValuesIn(testing::kMakers),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(BrokenPrograms, EveryMissingEdgeIsReported) {
  const Schedule schedule = GetParam().make(4, 12);
  const std::vector<ScheduleProgram> whole = compile_all(schedule, 2);
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    std::vector<ScheduleProgram> programs = whole;
    ASSERT_EQ(run_programs(schedule, programs, seed), "");
  }
  std::size_t num_edges = 0;
  for (std::size_t rank = 0; rank < whole.size(); ++rank) {
    for (const Edge& edge : edges_of(whole[rank])) {
      if (is_address(whole[rank], edge) || is_implied(whole[rank], edge)) continue;
      ++num_edges;
      std::string found;
      for (std::uint64_t seed = 1; seed <= kEnoughSeeds && found.empty(); ++seed) {
        std::vector<ScheduleProgram> programs = whole;
        remove_edge(programs[rank], edge);
        found = run_programs(schedule, programs, seed);
      }
      EXPECT_NE(found, "") << "rank " << rank << " without " << edge.before << " before "
                           << edge.after << ":\n"
                           << whole[rank].to_string();
    }
  }
  EXPECT_GT(num_edges, 0U);
}

TEST(BrokenInterleavings, AReceiveThatOverwritesWhatIsStillSent) {
  // The row goes to rank 1, and what rank 1 says comes into the same row: not before it has been sent.
  Schedule schedule{.num_participants = 2, .num_elements = 8, .steps = {}};
  schedule.add(ScheduleStep::Kind::REDUCE, {0, 8}, 1, {0, 1});
  schedule.add(ScheduleStep::Kind::COPY, {0, 8}, 0, {1});
  const std::vector<ScheduleProgram> whole = compile_all(schedule, 8);
  ASSERT_EQ(whole[0].tasks[0].kind, Kind::SEND);
  ASSERT_EQ(whole[0].tasks[1].kind, Kind::RECEIVE);
  std::vector<ScheduleProgram> programs = whole;
  EXPECT_EQ(run_programs(schedule, programs, 1), "");
  remove_edge(programs[0], {.before = 0, .after = 1});
  EXPECT_EQ(run_programs(schedule, programs, 1),
            "rank 0 receives message 0 from rank 1 where message 0 to rank 1 is still to be read");
}

TEST(BrokenInterleavings, MessagesInAnotherOrderThanTheyAreExpected) {
  const Schedule schedule = testing::kMakers[0].make(2, 8);
  std::vector<ScheduleProgram> programs = compile_all(schedule, 2);
  std::vector<std::size_t> sends;
  for (std::size_t t = 0; t < programs[0].tasks.size(); ++t) {
    if (programs[0].tasks[t].kind == Kind::SEND) sends.push_back(t);
  }
  ASSERT_GE(sends.size(), 2U);
  std::swap(programs[0].tasks[sends[0]].range, programs[0].tasks[sends[1]].range);
  EXPECT_NE(run_programs(schedule, programs, 1), "");
}

TEST(BrokenInterleavings, AStandstillSaysWhoWaitsForWhom) {
  // Each sends only what it has received.
  Schedule schedule{.num_participants = 2, .num_elements = 4, .steps = {}};
  schedule.add(ScheduleStep::Kind::COPY, {0, 4}, 1, {0});
  schedule.add(ScheduleStep::Kind::COPY, {0, 4}, 0, {1});
  std::vector<ScheduleProgram> programs = compile_all(schedule, 4);
  std::vector<ProgramTask>& tasks = programs[0].tasks;  // a send, then a receive
  std::swap(tasks[0].kind, tasks[1].kind);
  for (std::uint64_t seed = 1; seed <= kManySeeds; ++seed) {
    ASSERT_EQ(run_programs(schedule, programs, seed),
              "nobody can go on: rank 0 waits for message 0 from rank 1 (not sent); rank 1 waits "
              "for message 0 from rank 0 (not sent);");
  }
}

// ---------------------------------------------------------------------------------------------- members

using Work = std::function<void(Transport& transport, std::vector<std::byte>& memory)>;

/// What is reported of two members that exchange messages as `first` and `second` say.
std::vector<std::string> violations_of(std::uint64_t seed, const Work& first, const Work& second) {
  std::vector<std::vector<std::byte>> memory(2, std::vector<std::byte>(64));
  DrawnNetwork network(2, seed);
  const auto transports = make_drawn_transports(network);
  (void)network.run([&](std::size_t rank) {
    transports[rank]->connect(testing::peers_of(rank, 2), Deadline::never());
    transports[rank]->begin({.kind = "test"});
    (rank == 0 ? first : second)(*transports[rank], memory[rank]);
  });
  return network.violations();
}

void receive_all(Transport& transport, std::vector<std::byte>& memory) {
  Transfer transfer;
  transport.receive(transport.rank() == 0 ? 1 : 0, memory, transfer);
  transport.wait(transfer, Deadline::never());
}

TEST(BrokenInterleavings, ASenderThatDoesNotWaitBeforeItWritesAgain) {
  for (std::uint64_t seed = 1; seed <= kManySeeds; ++seed) {
    const auto found = violations_of(
        seed,
        [](Transport& transport, std::vector<std::byte>& memory) {
          Transfer transfer;
          transport.send(1, memory, transfer);
          memory[5] = std::byte{1};
          transport.wait(transfer, Deadline::never());
        },
        receive_all);
    ASSERT_THAT(found, Contains(HasSubstr("rank 0 has overwritten bytes of message 0 to rank 1")));
  }
}

TEST(BrokenInterleavings, AReceiverThatWritesWhereAMessageComes) {
  for (std::uint64_t seed = 1; seed <= kManySeeds; ++seed) {
    const auto found = violations_of(
        seed,
        [](Transport& transport, std::vector<std::byte>& memory) {
          Transfer transfer;
          transport.receive(1, memory, transfer);
          memory[5] ^= std::byte{1};
          transport.wait(transfer, Deadline::never());
        },
        [](Transport& transport, std::vector<std::byte>& memory) {
          Transfer transfer;
          transport.send(0, memory, transfer);
          transport.wait(transfer, Deadline::never());
        });
    ASSERT_THAT(found, Contains(HasSubstr("rank 0 has written where message 0 from rank 1 comes")));
  }
}

TEST(BrokenInterleavings, AReceiverThatReadsTooEarlyGetsSomethingElse) {
  std::size_t num_wrong = 0;
  for (std::uint64_t seed = 1; seed <= kManySeeds; ++seed) {
    const auto found = violations_of(
        seed,
        [&](Transport& transport, std::vector<std::byte>& memory) {
          Transfer transfer;
          transport.receive(1, memory, transfer);
          (void)transport.poll();
          if (memory != std::vector<std::byte>(64, std::byte{7})) ++num_wrong;
          transport.wait(transfer, Deadline::never());
          EXPECT_EQ(memory, std::vector<std::byte>(64, std::byte{7}));
        },
        [](Transport& transport, std::vector<std::byte>& memory) {
          Transfer transfer;
          std::ranges::fill(memory, std::byte{7});
          transport.send(0, memory, transfer);
          transport.wait(transfer, Deadline::never());
        });
    ASSERT_THAT(found, IsEmpty());
  }
  EXPECT_GT(num_wrong, kManySeeds / 2);
}

TEST(BrokenInterleavings, AMemberThatEndsWithTransfersUnderWay) {
  const auto found = violations_of(
      1,
      [](Transport& transport, std::vector<std::byte>& memory) {
        Transfer transfer;
        transport.receive(1, memory, transfer);
      },
      [](Transport& /*transport*/, std::vector<std::byte>& /*memory*/) {});
  EXPECT_THAT(found, Contains(HasSubstr("rank 0 ends though message 0 from rank 1 is under way")));
}

TEST(BrokenInterleavings, AMemberThatDoesNotComeLeavesTheOthersWaiting) {
  const auto found = violations_of(
      1, receive_all, [](Transport& /*transport*/, std::vector<std::byte>& /*memory*/) {});
  EXPECT_THAT(found, Contains(HasSubstr("nobody can go on: rank 0 waits for message 0 from rank 1 "
                                        "(not sent);")));
}

TEST(BrokenInterleavings, MembersThatDisagree) {
  const auto other_size =
      violations_of(1, receive_all, [](Transport& transport, std::vector<std::byte>& memory) {
        Transfer transfer;
        transport.send(0, std::span<const std::byte>(memory).first(63), transfer);
        transport.wait(transfer, Deadline::never());
      });
  EXPECT_THAT(other_size, Contains(HasSubstr("rank 1 sends 63 bytes where rank 0 expects 64")));
  const auto other_call =
      violations_of(1, receive_all, [](Transport& transport, std::vector<std::byte>& memory) {
        transport.begin({.kind = "another"});
        Transfer transfer;
        transport.send(0, memory, transfer);
        transport.wait(transfer, Deadline::never());
      });
  EXPECT_THAT(other_call,
              Contains(HasSubstr("rank 1 sends in call 2 what rank 0 receives in call 1")));
}

}  // namespace
}  // namespace crossdevice
