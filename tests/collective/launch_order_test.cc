// SPDX-License-Identifier: Apache-2.0
// Workers (threads here) whose threads call several objects over the same emulated GPUs, with random delays: in which order each worker launches. Nothing is launched:
// what NCCL makes of an order is in tests/ops/collective_objects_test.cc.
#include "collective/detail/launch_order.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

#include "support/emulated_gpus.h"
#include "support/gpu_values.h"
#include "support/threaded_cluster.h"
#include "support/thrown.h"

namespace crossdevice::detail {
namespace {

[[maybe_unused]] const bool kInstalled = (testing::install_emulated_gpus(), true);

using testing::gpu;
using ::testing::HasSubstr;
using testing::no_errors;
using testing::run_clusters;
using testing::thrown;
using ClusterPtr = std::shared_ptr<Cluster>;

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }
Devices gpu_of(const Cluster& cluster) {
  return Devices(gpu(static_cast<std::size_t>(cluster.rank())));
}

void take_place(LaunchOrder& order, LaunchOrder::Turn& turn) {
  (void)order.enter(turn, "", soon());
  order.await(turn, soon());
}

/// Call `number` of an object.
struct Launch {
  std::size_t object;
  int number;
  friend auto operator<=>(const Launch&, const Launch&) = default;
};

/// What one worker has launched, one after the other.
class Launches {
 public:
  /// Two at once, of which one has an order, are found.
  void make(const Launch& launch, std::chrono::microseconds time) {
    begin(launch);
    std::this_thread::sleep_for(time);
    const std::lock_guard lock(mutex_);
    --num_under_way_;
  }
  [[nodiscard]] const std::vector<Launch>& all() const { return all_; }
  [[nodiscard]] std::size_t most_at_once() const { return most_at_once_; }

 private:
  void begin(const Launch& launch) {
    const std::lock_guard lock(mutex_);
    all_.push_back(launch);
    most_at_once_ = std::max(most_at_once_, ++num_under_way_);
  }

  std::mutex mutex_;
  std::vector<Launch> all_;
  std::size_t num_under_way_ = 0;
  std::size_t most_at_once_ = 0;
};

/// Calls one object, `num_calls` times, with pauses that differ by worker and `seed`.
struct Caller {
  LaunchOrder& order;
  Launches& launches;
  std::size_t object;
  int num_calls;
  std::size_t seed;
  std::function<void(int call)> before = [](int) {};

  void operator()() const {
    std::minstd_rand random(static_cast<unsigned>(seed * 7919 + object * 104729 + 1));
    const auto pause = [&random] {
      return std::chrono::microseconds(random() % 3 == 0 ? random() % 2000 : 0);
    };
    for (int call = 1; call <= num_calls; ++call) {
      before(call);
      std::this_thread::sleep_for(pause());
      LaunchOrder::Turn turn;
      order.begin(turn, soon());
      if (turn.is_ordered()) take_place(order, turn);
      launches.make({object, call}, pause());
    }
  }
};

/// One order contains those of all workers: what each launches next comes behind what it has launched, and nothing comes behind itself.
void expect_one_order(const std::vector<Launches>& workers) {
  std::map<Launch, std::set<Launch>> behind;
  std::map<Launch, std::size_t> num_before;
  for (const Launches& worker : workers) {
    const std::vector<Launch>& all = worker.all();
    for (std::size_t i = 0; i < all.size(); ++i) {
      num_before[all[i]] += 0;
      if (i > 0 && behind[all[i - 1]].insert(all[i]).second) ++num_before[all[i]];
    }
  }
  std::vector<Launch> next;
  for (const auto& [launch, count] : num_before) {
    if (count == 0) next.push_back(launch);
  }
  std::size_t num_sorted = 0;
  for (; !next.empty(); ++num_sorted) {
    const Launch launch = next.back();
    next.pop_back();
    for (const Launch& later : behind[launch]) {
      if (--num_before[later] == 0) next.push_back(later);
    }
  }
  EXPECT_EQ(num_sorted, num_before.size()) << "workers that launch so wait for each other";
}

TEST(ExpectOneOrder, FindsACircleOfThree) {
  std::vector<Launches> workers(3);
  for (std::size_t w = 0; w < 3; ++w) {
    workers[w].make({w, 1}, {});
    workers[w].make({(w + 1) % 3, 1}, {});
  }
  EXPECT_NONFATAL_FAILURE(expect_one_order(workers), "wait for each other");
}

class LaunchOrderTest : public ::testing::TestWithParam<std::size_t> {};

TEST_P(LaunchOrderTest, ObjectsOfAllWorkers) {
  constexpr std::size_t kObjects = 3;
  std::vector<Launches> launches(3);
  const auto errors = run_clusters(3, [&](const ClusterPtr& cluster) {
    const auto rank = static_cast<std::size_t>(cluster->rank());
    std::vector<std::unique_ptr<LaunchOrder>> orders;
    for (std::size_t i = 0; i < kObjects; ++i) {
      orders.push_back(std::make_unique<LaunchOrder>(cluster, gpu_of(*cluster), soon()));
    }
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kObjects; ++i) {
      threads.emplace_back(Caller{*orders[i], launches[rank], i, 20, GetParam() * 8 + rank});
    }
    for (std::thread& each : threads) each.join();
    cluster->barrier(60);
  });
  EXPECT_EQ(errors, no_errors(3));
  for (const Launches& each : launches) {
    EXPECT_EQ(each.all().size(), kObjects * 20);
    EXPECT_EQ(each.most_at_once(), 1U);
  }
  expect_one_order(launches);
}

/// Who is not in the second one, and whose GPU has only the first, learns too that there is an order.
TEST_P(LaunchOrderTest, ObjectsOfSomeWorkersThatAreMadeWhileAnotherIsCalled) {
  std::vector<Launches> launches(4);
  const auto errors = run_clusters(4, [&](const ClusterPtr& cluster) {
    const auto rank = static_cast<std::size_t>(cluster->rank());
    const std::size_t seed = GetParam() * 8 + rank;
    LaunchOrder first(cluster, gpu_of(*cluster), soon());
    std::atomic<int> num_begun{0};
    std::thread calls(
        Caller{first, launches[rank], 0, 60, seed, [&num_begun](int call) { num_begun = call; }});
    while (num_begun < 5 + cluster->rank() * 3) std::this_thread::yield();
    // 1: {0, 1}, 2: {1, 2}, 3: {2, 0}; worker 3 is in none of them.
    std::map<std::size_t, std::unique_ptr<LaunchOrder>> others;
    for (std::size_t i = 0; i < 3; ++i) {
      const int low = static_cast<int>(i);
      const int high = static_cast<int>((i + 1) % 3);
      if (cluster->rank() != low && cluster->rank() != high) continue;
      const ClusterPtr pair = cluster->subgroup({low, high});
      others.emplace(i + 1, std::make_unique<LaunchOrder>(pair, gpu_of(*cluster), soon()));
    }
    std::vector<std::thread> threads;
    for (const auto& [object, order] : others) {
      threads.emplace_back(Caller{*order, launches[rank], object, 15, seed});
    }
    for (std::thread& each : threads) each.join();
    calls.join();
    cluster->barrier(60);
  });
  EXPECT_EQ(errors, no_errors(4));
  EXPECT_EQ(launches[0].all().size(), 60U + 2 * 15U);
  EXPECT_EQ(launches[3].all().size(), 60U);
  expect_one_order(launches);
}

/// One that is over on some workers is not waited for by what is made beside it on others.
TEST_P(LaunchOrderTest, ObjectsThatEndEarlierHereThanThere) {
  std::vector<Launches> launches(3);
  const auto errors = run_clusters(3, [&](const ClusterPtr& cluster) {
    const auto rank = static_cast<std::size_t>(cluster->rank());
    std::vector<std::unique_ptr<LaunchOrder>> kept;
    for (std::size_t i = 0; i < 6; ++i) {
      auto order = std::make_unique<LaunchOrder>(cluster, gpu_of(*cluster), soon());
      Caller{*order, launches[rank], i, 3, GetParam()}();
      if ((rank + i) % 3 == 0) kept.push_back(std::move(order));
    }
    cluster->barrier(60);
  });
  EXPECT_EQ(errors, no_errors(3));
  for (const Launches& each : launches) EXPECT_EQ(each.all(), launches[0].all());
}

INSTANTIATE_TEST_SUITE_P(Seeds, LaunchOrderTest, ::testing::Range<std::size_t>(0, 6));

bool has_order(LaunchOrder& order) {
  LaunchOrder::Turn turn;
  order.begin(turn, soon());
  if (turn.is_ordered()) take_place(order, turn);
  return turn.is_ordered();
}

TEST(LaunchOrdersTest, OnlyWhatSharesAGpuHasAnOrder) {
  const auto errors = run_clusters(2, [](const ClusterPtr& cluster) {
    const auto rank = static_cast<std::size_t>(cluster->rank());
    LaunchOrder one(cluster, Devices(gpu(rank)), soon());
    EXPECT_FALSE(has_order(one));
    LaunchOrder apart(cluster, Devices(gpu(2 + rank)), soon());
    EXPECT_FALSE(has_order(one));
    EXPECT_FALSE(has_order(apart));
    LaunchOrder none(cluster, Devices("CPU:0"), soon());
    EXPECT_FALSE(has_order(none));
    {
      // On one worker alone, which is enough.
      LaunchOrder beside(cluster, Devices(gpu(rank == 0 ? 0 : 5)), soon());
      EXPECT_TRUE(has_order(beside));
      EXPECT_TRUE(has_order(one));
    }
    cluster->barrier(60);
    EXPECT_TRUE(has_order(one)) << "an order is kept";
    EXPECT_FALSE(has_order(apart));
    cluster->barrier(60);
  });
  EXPECT_EQ(errors, no_errors(2));
}

/// Two objects of two workers, which share each worker's GPU.
void run_two(const std::function<void(const ClusterPtr& cluster, LaunchOrder& one,
                                      LaunchOrder& two)>& work) {
  const auto errors = run_clusters(2, [&work](const ClusterPtr& cluster) {
    LaunchOrder one(cluster, gpu_of(*cluster), soon());
    LaunchOrder two(cluster, gpu_of(*cluster), soon());
    work(cluster, one, two);
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(LaunchOrdersTest, WhoDoesNotComeIsNamed) {
  run_two([](const ClusterPtr& cluster, LaunchOrder& /*one*/, LaunchOrder& two) {
    if (cluster->rank() == 0) {
      LaunchOrder::Turn turn;
      two.begin(turn, soon());
      const auto enter = [&] {
        (void)two.enter(turn, "", Deadline::after(std::chrono::milliseconds(300)));
      };
      EXPECT_THAT(thrown<DeadlineExceededError>(enter), HasSubstr("waiting for rank 1"));
    }
    cluster->barrier(60);
  });
}

/// A launch that does not come to its end holds those behind it until their deadline; what the others then come to is their own.
TEST(LaunchOrdersTest, WhoWaitsForALaunchThatDoesNotEndHasADeadline) {
  run_two([](const ClusterPtr& cluster, LaunchOrder& one, LaunchOrder& two) {
    LaunchOrder::Turn first;
    one.begin(first, soon());
    take_place(one, first);
    if (cluster->rank() == 1) first.end();
    LaunchOrder::Turn second;
    two.begin(second, soon());
    (void)two.enter(second, "", soon());
    const auto await = [&] { two.await(second, Deadline::after(std::chrono::milliseconds(300))); };
    if (cluster->rank() == 0) {
      EXPECT_THAT(thrown<DeadlineExceededError>(await), HasSubstr("on rank 0"));
    } else {
      EXPECT_NO_THROW(await());
    }
    cluster->barrier(60);
  });
}

/// What takes long is made by all, and the call behind it has its time afterwards.
TEST(LaunchOrdersTest, TimeInWhichAnotherIsMadeDoesNotCount) {
  run_two([](const ClusterPtr& cluster, LaunchOrder& one, LaunchOrder& two) {
    LaunchOrder::Turn making;
    two.begin_making(making, soon());
    take_place(two, making);
    std::thread maker([&making] {
      std::this_thread::sleep_for(std::chrono::seconds(3));
      making.end();
    });
    LaunchOrder::Turn call;
    one.begin(call, soon());
    (void)one.enter(call, "", soon());
    const Deadline deadline = Deadline::after(std::chrono::seconds(2));
    EXPECT_NO_THROW(one.await(call, deadline));
    // Nor for what is launched behind it.
    EXPECT_FALSE(call.prolonged(deadline).has_passed());
    EXPECT_TRUE(call.prolonged(Deadline::never()).is_never());
    maker.join();
    cluster->barrier(60);
  });
}

TEST(LaunchOrdersTest, TheJobsEndEndsTheWait) {
  run_two([](const ClusterPtr& cluster, LaunchOrder& one, LaunchOrder& two) {
    LaunchOrder::Turn first;
    one.begin(first, soon());
    take_place(one, first);
    std::latch is_waiting(1);
    std::atomic<bool> is_over{false};
    std::thread other([&] {
      LaunchOrder::Turn second;
      two.begin(second, Deadline::never());
      (void)two.enter(second, "", Deadline::never());
      is_waiting.count_down();
      two.await(second, Deadline::never());
      is_over = true;
    });
    is_waiting.wait();
    cluster->barrier(60);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_TRUE(cluster->rank() == 1 || !is_over) << "it waited for nobody";
    if (cluster->rank() == 0) cluster->abort_collective_ops("enough");
    other.join();
  });
}

/// One worker has made a call that the other never makes, since the object is broken there: nobody waits for it.
TEST(LaunchOrdersTest, AnObjectThatIsBrokenIsNotWaitedFor) {
  const auto errors = run_clusters(2, [](const ClusterPtr& cluster) {
    LaunchOrder broken(cluster, gpu_of(*cluster), soon());
    EXPECT_FALSE(has_order(broken));
    if (cluster->rank() == 1) {
      EXPECT_FALSE(has_order(broken));
    }
    cluster->barrier(60);
    LaunchOrder other(cluster, gpu_of(*cluster), soon());
    LaunchOrder::Turn turn;
    other.begin(turn, soon());
    (void)other.enter(turn, "", soon());
    if (cluster->rank() == 0) {
      const auto await = [&] {
        other.await(turn, Deadline::after(std::chrono::milliseconds(200)));
      };
      EXPECT_THAT(thrown<DeadlineExceededError>(await), HasSubstr("come first"));
      broken.give_up();
    }
    other.await(turn, soon());
    turn.end();
    EXPECT_TRUE(has_order(other));
    cluster->barrier(60);
  });
  EXPECT_EQ(errors, no_errors(2));
}

/// An object that a worker which has gone was in holds nobody who goes on without it.
TEST(LaunchOrdersTest, WhoHasGoneIsNotWaitedFor) {
  const auto errors = run_clusters(3, [](const ClusterPtr& cluster) {
    const ClusterPtr pair = cluster->rank() == 2 ? nullptr : cluster->subgroup({0, 1});
    LaunchOrder of_all(cluster, gpu_of(*cluster), soon());
    if (cluster->rank() == 1) {
      EXPECT_FALSE(has_order(of_all));
    }
    cluster->barrier(60);
    if (cluster->rank() == 2) return;
    EXPECT_NE(thrown<UnavailableError>([&] { cluster->barrier(60); }), "");
    LaunchOrder of_two(pair, gpu_of(*cluster), soon());
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(has_order(of_two));
    pair->barrier(60);
  });
  EXPECT_EQ(errors, no_errors(3));
}

}  // namespace
}  // namespace crossdevice::detail
