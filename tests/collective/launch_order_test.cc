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
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
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

/// Call `number` of an object.
struct Launch {
  std::size_t object;
  int number;
  friend bool operator==(const Launch&, const Launch&) = default;
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
  [[nodiscard]] std::ptrdiff_t place(const Launch& launch) const {
    return std::find(all_.begin(), all_.end(), launch) - all_.begin();
  }

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
      if (turn.is_ordered()) (void)order.await(turn, "", soon());
      launches.make({object, call}, pause());
    }
  }
};

/// Of each pair of launches of different objects that two workers have both made.
void expect_one_order(const std::vector<Launches>& workers) {
  for (std::size_t a = 0; a < workers.size(); ++a) {
    for (std::size_t b = a + 1; b < workers.size(); ++b) {
      std::vector<std::pair<std::ptrdiff_t, Launch>> common;  // with their places at b
      for (const Launch& each : workers[a].all()) {
        const std::ptrdiff_t place = workers[b].place(each);
        if (place < std::ssize(workers[b].all())) common.emplace_back(place, each);
      }
      for (std::size_t i = 1; i < common.size(); ++i) {
        EXPECT_LT(common[i - 1].first, common[i].first)
            << "workers " << a << " and " << b << ": call " << common[i].second.number
            << " of object " << common[i].second.object;
      }
    }
  }
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
  if (turn.is_ordered()) (void)order.await(turn, "", soon());
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

TEST(LaunchOrdersTest, WhoDoesNotComeIsNamed) {
  const auto errors = run_clusters(2, [](const ClusterPtr& cluster) {
    LaunchOrder one(cluster, gpu_of(*cluster), soon());
    LaunchOrder two(cluster, gpu_of(*cluster), soon());
    if (cluster->rank() == 0) {
      LaunchOrder::Turn turn;
      two.begin(turn, soon());
      const auto await = [&] {
        (void)two.await(turn, "", Deadline::after(std::chrono::milliseconds(300)));
      };
      EXPECT_THAT(thrown<DeadlineExceededError>(await), HasSubstr("waiting for rank 1"));
    }
    cluster->barrier(60);
  });
  EXPECT_EQ(errors, no_errors(2));
}

/// A launch that does not come to its end holds those behind it until their deadline; what the others then come to is their own.
TEST(LaunchOrdersTest, WhoWaitsForALaunchThatDoesNotEndHasADeadline) {
  const auto errors = run_clusters(2, [](const ClusterPtr& cluster) {
    LaunchOrder one(cluster, gpu_of(*cluster), soon());
    LaunchOrder two(cluster, gpu_of(*cluster), soon());
    LaunchOrder::Turn first;
    one.begin(first, soon());
    (void)one.await(first, "", soon());
    if (cluster->rank() == 1) first.end();
    LaunchOrder::Turn second;
    two.begin(second, soon());
    const auto await = [&] {
      (void)two.await(second, "", Deadline::after(std::chrono::milliseconds(300)));
    };
    if (cluster->rank() == 0) {
      EXPECT_THAT(thrown<DeadlineExceededError>(await), HasSubstr("come first"));
    } else {
      EXPECT_NO_THROW(await());
    }
    cluster->barrier(60);
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(LaunchOrdersTest, TheJobsEndEndsTheWait) {
  const auto errors = run_clusters(2, [](const ClusterPtr& cluster) {
    LaunchOrder one(cluster, gpu_of(*cluster), soon());
    LaunchOrder two(cluster, gpu_of(*cluster), soon());
    LaunchOrder::Turn first;
    one.begin(first, soon());
    (void)one.await(first, "", soon());
    std::latch is_waiting(1);
    std::thread other([&] {
      LaunchOrder::Turn second;
      two.begin(second, Deadline::never());
      is_waiting.count_down();
      try {
        (void)two.await(second, "", Deadline::never());
      } catch (const AbortedError&) {  // it may not have come to the wait yet
      }
    });
    is_waiting.wait();
    cluster->barrier(60);
    if (cluster->rank() == 0) cluster->abort_collective_ops("enough");
    other.join();
  });
  EXPECT_EQ(errors, no_errors(2));
}

}  // namespace
}  // namespace crossdevice::detail
