// SPDX-License-Identifier: Apache-2.0
/// Who is missed is said to be in what it is in, whatever that is: workers are processes, of which one does something else than the others.
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/collective/communicator.h"
#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/error.h"
#include "crossdevice/ops/collective_all_reduce.h"

#include "support/log_keeper.h"
#include "support/tried_again.h"
#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::Matcher;

/// In seconds: the workers hear meanwhile what each of them does, by two heartbeats at least, also where one is slow to say it at the end.
constexpr double kShort = 6;
constexpr double kLong = 30;

/// What a call that must time out says.
template <class Call>
std::string said(Call call) {
  try {
    call();
  } catch (const DeadlineExceededError& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another kind of error: ") + error.what();
  }
  return "no error";
}

PerReplica some_value() { return PerReplica{Tensor::zeros(DType::FLOAT32, {100}, "CPU:0")}; }

void reduce_in(CollectiveAllReduce& ops, double seconds) {
  const PerReplica value = some_value();
  ops.reduce_into(ReduceOp::MAX, value, value, {.timeout_seconds = seconds});
}

/// Rank 1 waits in a barrier for the others, who wait for it in a reduction.
void reduce_and_meet(Cluster& cluster) {
  CollectiveAllReduce ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  if (cluster.rank() != 1) {
    EXPECT_THROW(reduce_in(ops, kLong), OpError);
    return;
  }
  EXPECT_THAT(said([&] { cluster.barrier(kShort); }),
              AllOf(ContainsRegex("^barrier #[0-9]+ timed out after 6[.0-9]* s: waiting for rank 0 "
                                  "[(][^)]*[)], last seen in reduce #1, rank 2 [(]"),
                    ContainsRegex("rank 2 [(][^)]*[)], last seen in reduce #1$")));
}

/// Rank 1 waits in a round of the cluster for the other, who waits for it in a communicator.
void communicate_and_broadcast(Cluster& cluster) {
  Communicator world(shared(cluster));
  if (cluster.rank() == 1) {
    EXPECT_THROW((void)cluster.broadcast_bytes("x", 0, kLong), OpError);
    return;
  }
  const Tensor value = Tensor::zeros(DType::FLOAT32, {8}, "CPU:0");
  EXPECT_THAT(
      said([&] { world.all_reduce(ReduceOp::SUM, value, {.timeout_seconds = kShort}); }),
      ContainsRegex("^all_reduce #1 .*timed out.*: waiting for rank 1 [(][^)]*[)], last seen "
                    "in broadcast_bytes from rank 0 #[0-9]+ of the cluster$"));
}

/// How a worker ends that was so late itself that the other one who waits has given it up, too; or that one.
constexpr int kIsNamedToo = 3;

/// Each is in the first call of another object.
int reduce_in_two_objects(Cluster& cluster) {
  CollectiveAllReduce one({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  CollectiveAllReduce other({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  const bool is_first = cluster.rank() == 1;
  // Rank 1 waits longer, so that the others find it there.
  if (is_first) {
    EXPECT_THROW(reduce_in(other, kLong), OpError);
    return 0;
  }
  const std::string text = said([&] { reduce_in(one, kShort); });
  cluster.subgroup({0, 2})->barrier(kLong);  // else the other one might hear that this one has gone
  const std::string late = std::to_string(2 - cluster.rank());
  const Matcher<const std::string&> names_it_too =
      AnyOf(ContainsRegex("waiting for this worker, rank " + std::to_string(cluster.rank())),
            ContainsRegex("waiting for (rank 1 .*, )?rank " + late + " "));
  if (names_it_too.Matches(text)) return kIsNamedToo;
  // Of the two who wait for as long, the later one may hear that the other has given up already.
  EXPECT_THAT(text,
              ContainsRegex("^reduce #1 .*(timed out after 6[.0-9]* s: |has given up )waiting for "
                            "rank 1 [(][^)]*[)], last seen in reduce #1 of (this or )?another "
                            "object"));
  return 0;
}

/// Rank 1 is in nothing, and never was, or not since the last one.
void miss_the_idle(Cluster& cluster) {
  CollectiveAllReduce ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  const std::shared_ptr<Cluster> afterwards = cluster.duplicate();
  reduce_in(ops, kLong);
  if (cluster.rank() == 1) return await_the_others();
  EXPECT_THAT(said([&] { reduce_in(ops, kShort); }),
              ContainsRegex("^reduce #2 .*: waiting for rank 1 [(][^)]*[)], last seen in no "
                            "operation since reduce #1"));
  await_the_others();
}

void miss_who_did_nothing(Cluster& cluster) {
  if (cluster.rank() == 1) return await_the_others();
  EXPECT_THAT(said([&] { cluster.barrier(kShort); }),
              ContainsRegex("waiting for rank 1 [(][^)]*[)], last seen in no operation$"));
  await_the_others();
}

/// On the log as in an error.
void stall(Cluster& cluster) {
  const LogKeeper log;
  CollectiveAllReduce ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  const std::shared_ptr<Cluster> meeting = cluster.duplicate();
  if (cluster.rank() == 1) {
    meeting->barrier(kLong);
  } else {
    std::thread watcher([&] {
      EXPECT_TRUE(log.await("last seen in barrier #1 of the cluster",
                            Deadline::after(std::chrono::seconds(30))));
      meeting->barrier(kLong);
    });
    reduce_in(ops, kLong);
    watcher.join();
    return;
  }
  reduce_in(ops, kLong);
}

const Works& works() {
  static const Works all = {{"reduce and meet", reduce_and_meet},
                            {"communicate and broadcast", communicate_and_broadcast},
                            {"reduce in two objects", reduce_in_two_objects},
                            {"miss the idle", miss_the_idle},
                            {"miss who did nothing", miss_who_did_nothing},
                            {"stall", stall}};
  return all;
}

class MissingWorkersTest : public ::testing::TestWithParam<Machines> {
 protected:
  static std::vector<int> run(const std::string& work, int num_workers) {
    return run_workers(work, num_workers, -1, GetParam());
  }
};

INSTANTIATE_TEST_SUITE_P(Workers, MissingWorkersTest,
                         ::testing::Values(Machines::ONE, Machines::ONE_EACH),
                         [](const auto& tested) { return to_string(tested.param); });

TEST_P(MissingWorkersTest, WhoIsInAReductionIsSeenInItFromABarrier) {
  EXPECT_EQ(run("reduce and meet", 3), all_well(3));
}

TEST_P(MissingWorkersTest, WhoIsInARoundOfTheClusterIsSeenInIt) {
  EXPECT_EQ(run("communicate and broadcast", 2), all_well(2));
}

TEST_P(MissingWorkersTest, WhoIsInAnotherObjectsCallIsSeenInIt) {
  expect_ends([] { return run("reduce in two objects", 3); }, all_well(3), kIsNamedToo);
}

TEST_P(MissingWorkersTest, WhoIsInNothingIsSaidToBe) {
  EXPECT_EQ(run("miss the idle", 2), all_well(2));
  EXPECT_EQ(run("miss who did nothing", 2), all_well(2));
}

TEST_P(MissingWorkersTest, AStallIsSpokenOfWithWhatTheOtherDoes) {
  EXPECT_EQ(run("stall", 2), all_well(2));
}

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(
      argc, argv, crossdevice::works(), [](const std::string& work) {
        return crossdevice::JoinOptions{.timeout_seconds = 60,
                                        .stall_warning_seconds = work == "stall" ? 0.3 : 30};
      });
}
