// SPDX-License-Identifier: Apache-2.0
/// Ranks are threads with an in-process transport each; what they get is compared, bit by bit, with the schedule executed step by step.
#include "crossdevice/collective/schedule_executor.h"

#include <cstddef>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/rooted.h"
#include "crossdevice/collective/schedule_traffic.h"
#include "crossdevice/comm/in_process_transport.h"
#include "crossdevice/core/error.h"

#include "collective/scheduled_reduce_fixture.h"
#include "support/reference_schedule.h"
#include "support/threaded_cluster.h"

namespace crossdevice {
namespace {

using testing::kMakers;
using testing::no_errors;
using testing::run_ranks;

constexpr double kPatience = 60;

using Bytes = std::vector<std::byte>;

Bytes random_bytes(std::mt19937_64& random, DType dtype, std::size_t count) {
  Bytes bytes(count * size_in_bytes(dtype));
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(random());
    if (dtype == DType::BOOL) byte &= std::byte{1};
  }
  return bytes;
}

enum class Place { IN_PLACE, OUT_OF_PLACE };

/// One row on every rank.
struct Job {
  ReduceOp op = ReduceOp::SUM;
  DType dtype = DType::FLOAT32;
  Place place = Place::OUT_OF_PLACE;
  std::vector<ScheduleProgram> programs{};  // by rank
  std::vector<Bytes> inputs{};
  std::vector<Bytes> outputs{};
  std::vector<Bytes> expected{};
  bool has_result_everywhere = true;

  Job(const Schedule& schedule, ReduceOp reduce_op, DType of, Place where, std::size_t piece,
      std::mt19937_64& random)
      : op(reduce_op), dtype(of), place(where) {
    const std::size_t n = schedule.num_participants;
    std::vector<const void*> addresses;
    for (std::size_t rank = 0; rank < n; ++rank) {
      programs.push_back(compile_schedule(schedule, rank, piece));
      inputs.push_back(random_bytes(random, dtype, schedule.num_elements));
      outputs.push_back(place == Place::IN_PLACE ? inputs.back() : Bytes(inputs.back().size()));
    }
    for (const Bytes& input : inputs) addresses.push_back(input.data());
    expected = testing::reference_execute(schedule, op, dtype, addresses);
  }
  [[nodiscard]] ScheduleJob of_rank(std::size_t rank) {
    return {.program = &programs[rank],
            .op = op,
            .dtype = dtype,
            .input = place == Place::IN_PLACE ? outputs[rank].data() : inputs[rank].data(),
            .output = outputs[rank].data(),
            .divisor = static_cast<double>(inputs.size())};
  }
};

std::vector<std::string> run(std::vector<Job>& jobs, std::size_t n) {
  const std::vector<std::unique_ptr<Transport>> transports =
      make_in_process_transports(static_cast<int>(n));
  return run_ranks(n, [&](std::size_t rank) {
    Transport& transport = *transports[rank];
    std::vector<ScheduleJob> mine;
    std::vector<int> peers;
    for (std::size_t peer = 0; peer < n; ++peer) {
      if (peer != rank) peers.push_back(static_cast<int>(peer));
    }
    for (Job& job : jobs) mine.push_back(job.of_rank(rank));
    const Deadline deadline = Deadline::after_timeout_seconds(kPatience);
    transport.connect(peers, deadline);
    transport.begin({.kind = "test"});
    ScheduleExecutor executor(transport);
    executor.run(mine, deadline);
  });
}

class ScheduleExecutorTest : public ::testing::TestWithParam<testing::Maker> {};
INSTANTIATE_TEST_SUITE_P(Makers, ScheduleExecutorTest, ::testing::ValuesIn(kMakers),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(ScheduleExecutorTest, GivesTheBitsOfTheScheduleOnEveryRank) {
  std::mt19937_64 random(11);
  for (const std::size_t n : {1UL, 2UL, 3UL, 4UL, 5UL, 8UL}) {
    for (const std::size_t piece : {3UL, 1000UL}) {
      std::vector<Job> jobs;
      for (const std::size_t count : {0UL, 1UL, n - 1, n, n + 1, 97UL}) {
        jobs.emplace_back(GetParam().make(n, count), ReduceOp::SUM, DType::FLOAT32,
                          Place::OUT_OF_PLACE, piece, random);
        jobs.emplace_back(GetParam().make(n, count), ReduceOp::MAX, DType::BFLOAT16,
                          Place::IN_PLACE, piece, random);
        jobs.emplace_back(GetParam().make(n, count), ReduceOp::MEAN, DType::FLOAT64,
                          Place::IN_PLACE, piece, random);
        jobs.emplace_back(GetParam().make(n, count), ReduceOp::MEAN, DType::FLOAT16,
                          Place::OUT_OF_PLACE, piece, random);
      }
      ASSERT_EQ(run(jobs, n), no_errors(n));
      for (const Job& job : jobs) {
        EXPECT_EQ(job.outputs, job.expected)
            << n << " ranks, pieces of " << piece << ", " << to_string(job.dtype);
        if (job.place == Place::IN_PLACE) continue;
      }
    }
  }
}

TEST_P(ScheduleExecutorTest, EveryDTypeAndOp) {
  std::mt19937_64 random(12);
  std::vector<Job> jobs;
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllReduceOps) {
      if (!is_supported(op, dtype) || (op == ReduceOp::MEAN && is_integer(dtype))) continue;
      jobs.emplace_back(GetParam().make(3, 50), op, dtype, Place::OUT_OF_PLACE, 7, random);
    }
  }
  ASSERT_EQ(run(jobs, 3), no_errors(3));
  for (const Job& job : jobs) {
    EXPECT_EQ(job.outputs, job.expected) << to_string(job.op) << " " << to_string(job.dtype);
  }
}

TEST_P(ScheduleExecutorTest, ManyElements) {
  std::mt19937_64 random(13);
  std::vector<Job> jobs;
  jobs.emplace_back(GetParam().make(4, 1'000'003), ReduceOp::SUM, DType::FLOAT32,
                    Place::OUT_OF_PLACE, 65536, random);
  jobs.emplace_back(GetParam().make(4, 300'000), ReduceOp::SUM, DType::INT16, Place::IN_PLACE,
                    65536, random);
  ASSERT_EQ(run(jobs, 4), no_errors(4));
  for (const Job& job : jobs) EXPECT_EQ(job.outputs, job.expected);
}

TEST(ScheduleExecutor, InputsStayAsTheyWere) {
  std::mt19937_64 random(14);
  std::vector<Job> jobs;
  for (const testing::Maker& maker : kMakers) {
    jobs.emplace_back(maker.make(3, 20), ReduceOp::SUM, DType::FLOAT32, Place::OUT_OF_PLACE, 4,
                      random);
  }
  std::vector<std::vector<Bytes>> before;
  for (const Job& job : jobs) before.push_back(job.inputs);
  ASSERT_EQ(run(jobs, 3), no_errors(3));
  for (std::size_t i = 0; i < jobs.size(); ++i) EXPECT_EQ(jobs[i].inputs, before[i]);
}

TEST(ScheduleExecutor, RootedSchedulesGiveTheRootsResult) {
  std::mt19937_64 random(15);
  for (const std::size_t n : {1UL, 2UL, 3UL, 5UL, 8UL}) {
    for (std::size_t root = 0; root < n; ++root) {
      std::vector<Job> jobs;
      jobs.emplace_back(chain_broadcast_schedule(n, 100, root), ReduceOp::SUM, DType::INT32,
                        Place::IN_PLACE, 9, random);
      jobs.emplace_back(tree_broadcast_schedule(n, 100, root), ReduceOp::SUM, DType::INT32,
                        Place::IN_PLACE, 9, random);
      const std::size_t num_broadcasts = jobs.size();
      jobs.emplace_back(chain_reduce_schedule(n, 100, root), ReduceOp::SUM, DType::FLOAT32,
                        Place::OUT_OF_PLACE, 9, random);
      jobs.emplace_back(tree_reduce_schedule(n, 100, root), ReduceOp::SUM, DType::FLOAT32,
                        Place::OUT_OF_PLACE, 9, random);
      jobs.emplace_back(direct_reduce_schedule(n, 100, root), ReduceOp::SUM, DType::FLOAT32,
                        Place::OUT_OF_PLACE, 9, random);
      ASSERT_EQ(run(jobs, n), no_errors(n));
      for (std::size_t j = 0; j < jobs.size(); ++j) {
        for (std::size_t rank = 0; rank < n; ++rank) {
          if (j >= num_broadcasts && rank != root) continue;
          EXPECT_EQ(jobs[j].outputs[rank], jobs[j].expected[rank]);
        }
      }
    }
  }
}

class CountingObserver final : public OperationObserver {
 public:
  [[nodiscard]] bool stop_requested() const override { return false; }
  void tensor_completed(std::size_t tensor) override { completed.push_back(tensor); }
  std::vector<std::size_t> completed;
};

TEST(ScheduleExecutor, JobsAreReportedOnceEach) {
  std::mt19937_64 random(16);
  std::vector<Job> jobs;
  for (const std::size_t count : {0UL, 10UL, 1000UL, 0UL, 3UL}) {
    jobs.emplace_back(kMakers[0].make(2, count), ReduceOp::SUM, DType::FLOAT32, Place::IN_PLACE, 64,
                      random);
  }
  const auto transports = make_in_process_transports(2);
  std::vector<CountingObserver> observers(2);
  const auto errors = run_ranks(2, [&](std::size_t rank) {
    std::vector<ScheduleJob> mine;
    for (Job& job : jobs) mine.push_back(job.of_rank(rank));
    const int peer[] = {static_cast<int>(1 - rank)};
    const Deadline deadline = Deadline::after_timeout_seconds(kPatience);
    transports[rank]->connect(peer, deadline);
    transports[rank]->begin({.kind = "test"});
    ScheduleExecutor(*transports[rank]).run(mine, deadline, &observers[rank]);
  });
  ASSERT_EQ(errors, no_errors(2));
  for (CountingObserver& observer : observers) {
    std::sort(observer.completed.begin(), observer.completed.end());
    EXPECT_EQ(observer.completed, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
  }
}

TEST(ScheduleExecutor, ARankThatDoesNotComeIsNamedAtTheDeadline) {
  std::mt19937_64 random(17);
  std::vector<Job> jobs;
  jobs.emplace_back(kMakers[0].make(2, 10), ReduceOp::SUM, DType::FLOAT32, Place::IN_PLACE, 64,
                    random);
  const auto transports = make_in_process_transports(2);
  const int peer[] = {1};
  const int other_peer[] = {0};
  const Deadline patience = Deadline::after_timeout_seconds(kPatience);
  EXPECT_EQ(run_ranks(2,
                      [&](std::size_t rank) {
                        transports[rank]->connect(rank == 0 ? peer : other_peer, patience);
                      }),
            no_errors(2));
  transports[0]->begin({.kind = "test"});
  ScheduleExecutor executor(*transports[0]);
  const ScheduleJob job = jobs[0].of_rank(0);
  try {
    executor.run(std::span<const ScheduleJob>(&job, 1), Deadline::after_timeout_seconds(0.05));
    FAIL() << "no error";
  } catch (const DeadlineExceededError& error) {
    ASSERT_EQ(error.culprits().size(), 1U);
    EXPECT_EQ(error.culprits()[0].rank, 1);
  }
  EXPECT_THROW(
      executor.run(std::span<const ScheduleJob>(&job, 1), Deadline::after_timeout_seconds(0.05)),
      DeadlineExceededError);
}

/// Rank 1 is in the first job only. The deadline passes on rank 0 while that one's end is reported, and then there is nothing that it could do.
TEST(ScheduleExecutor, WhoIsWaitedForIsNamedAlsoWhereTheDeadlinePassesOutsideOfAWait) {
  class Slow final : public OperationObserver {
   public:
    explicit Slow(const Deadline& deadline) : deadline_(deadline) {}
    [[nodiscard]] bool stop_requested() const override { return false; }
    void tensor_completed(std::size_t /*index*/) override {
      std::this_thread::sleep_until(deadline_.moment());
    }

   private:
    Deadline deadline_;
  };
  std::mt19937_64 random(17);
  std::vector<Job> jobs;
  for (int i = 0; i < 2; ++i) {
    jobs.emplace_back(kMakers[0].make(2, 10), ReduceOp::SUM, DType::FLOAT32, Place::OUT_OF_PLACE,
                      64, random);
  }
  const auto transports = make_in_process_transports(2);
  const auto work = [&](std::size_t rank) {
    const int peer[] = {rank == 0 ? 1 : 0};
    const Deadline patience = Deadline::after_timeout_seconds(kPatience);
    transports[rank]->connect(peer, patience);
    transports[rank]->begin({.kind = "test"});
    ScheduleExecutor executor(*transports[rank]);
    const ScheduleJob mine[] = {jobs[0].of_rank(rank), jobs[1].of_rank(rank)};
    if (rank == 1) {
      executor.run(std::span(mine, 1), patience);
      return;
    }
    const Deadline deadline = Deadline::after_timeout_seconds(1);
    Slow slow(deadline);
    try {
      executor.run(mine, deadline, &slow);
      ADD_FAILURE() << "no error";
    } catch (const DeadlineExceededError& error) {
      ASSERT_EQ(error.culprits().size(), 1U) << error.what();
      EXPECT_EQ(error.culprits()[0].rank, 1) << error.what();
    }
  };
  EXPECT_EQ(run_ranks(2, work), no_errors(2));
}

TEST(ScheduleExecutor, CountersAreThePrediction) {
  std::mt19937_64 random(18);
  for (std::size_t n = 1; n <= 16; ++n) {
    for (const testing::Maker& maker : kMakers) {
      const Schedule schedule = maker.make(n, 16 * 15 * 14);
      const std::vector<RankTraffic> traffic = schedule_traffic(schedule);
      std::vector<Job> jobs;
      jobs.emplace_back(schedule, ReduceOp::SUM, DType::FLOAT32, Place::IN_PLACE,
                        schedule.num_elements, random);
      const auto transports = make_in_process_transports(static_cast<int>(n));
      ASSERT_EQ(run_ranks(n,
                          [&](std::size_t rank) {
                            const ScheduleJob mine = jobs[0].of_rank(rank);
                            std::vector<int> peers(mine.program->peers.begin(),
                                                   mine.program->peers.end());
                            const Deadline deadline = Deadline::after_timeout_seconds(kPatience);
                            transports[rank]->connect(peers, deadline);
                            transports[rank]->begin({.kind = "test"});
                            ScheduleExecutor(*transports[rank])
                                .run(std::span<const ScheduleJob>(&mine, 1), deadline);
                          }),
                no_errors(n));
      for (std::size_t rank = 0; rank < n; ++rank) {
        const TransportCounters counters = transports[rank]->counters();
        EXPECT_EQ(counters.bytes_sent, 4 * traffic[rank].elements_sent) << maker.name << n;
        EXPECT_EQ(counters.bytes_received, 4 * traffic[rank].elements_received) << maker.name << n;
        EXPECT_EQ(counters.messages_sent, traffic[rank].messages_sent) << maker.name << n;
        EXPECT_EQ(counters.messages_received, traffic[rank].messages_received) << maker.name << n;
      }
    }
  }
}

}  // namespace
}  // namespace crossdevice
