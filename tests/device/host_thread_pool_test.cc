// SPDX-License-Identifier: Apache-2.0
// Every chunk runs exactly once, whoever helps, whoever else has jobs, and whatever happens to the threads.
#include "crossdevice/device/host_thread_pool.h"

#include <atomic>
#include <chrono>
#include <initializer_list>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"

#include "support/allocation_counter.h"

namespace crossdevice {
namespace {

using std::chrono::microseconds;

/// How often each chunk of a job ran; plain numbers, so that a missing happens-before is a race TSan sees.
using Counts = std::vector<int>;

Counts run_counting(HostThreadPool& pool, std::size_t num_chunks) {
  Counts counts(num_chunks, 0);
  pool.run(num_chunks, [&](std::size_t chunk) { ++counts[chunk]; });
  return counts;
}

TEST(HostThreadPoolTest, RunsEveryChunkOnce) {
  for (const std::size_t num_threads : std::initializer_list<std::size_t>{1, 2, 3, 8}) {
    HostThreadPool pool(num_threads);
    EXPECT_EQ(pool.num_threads(), num_threads);
    for (const std::size_t num_chunks :
         std::initializer_list<std::size_t>{0, 1, 2, 3, 7, 64, 1000}) {
      for (int repeat = 0; repeat < 20; ++repeat) {
        ASSERT_EQ(run_counting(pool, num_chunks), Counts(num_chunks, 1));
      }
    }
  }
}

TEST(HostThreadPoolTest, HandsChunksOutInOrder) {
  HostThreadPool pool(1);
  std::vector<std::size_t> order;
  pool.run(5, [&](std::size_t chunk) { order.push_back(chunk); });
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
}

TEST(HostThreadPoolTest, RunsASingleChunkOnTheCaller) {
  HostThreadPool pool(4);
  std::thread::id where;
  pool.run(1, [&](std::size_t) { where = std::this_thread::get_id(); });
  EXPECT_EQ(where, std::this_thread::get_id());
}

TEST(HostThreadPoolTest, WakesAllItsThreadsForALongJob) {
  HostThreadPool pool(4);
  (void)run_counting(pool, 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the threads sleep by now
  std::mutex mutex;
  std::set<std::thread::id> seen;
  std::atomic<bool> all_came{false};
  // Chunks take their time until all threads have come; if one never did, the suite's limit of time would tell.
  pool.run(std::size_t{1} << 20, [&](std::size_t) {
    if (all_came) return;
    std::this_thread::sleep_for(microseconds(100));
    const std::lock_guard lock(mutex);
    seen.insert(std::this_thread::get_id());
    if (seen.size() == 4) all_came = true;
  });
  EXPECT_EQ(seen.size(), 4U);
}

TEST(HostThreadPoolTest, LetsManyThreadsHaveJobsAtOnce) {
  HostThreadPool pool(3);
  std::vector<std::thread> callers;
  std::vector<int> wrong(8, 0);
  for (std::size_t c = 0; c < wrong.size(); ++c) {
    callers.emplace_back([&, c] {
      std::mt19937 random(static_cast<unsigned>(c));
      for (int repeat = 0; repeat < 300; ++repeat) {
        const std::size_t num_chunks = random() % 20;
        if (run_counting(pool, num_chunks) != Counts(num_chunks, 1)) ++wrong[c];
        if (random() % 16 == 0) std::this_thread::sleep_for(microseconds(random() % 150));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, std::vector<int>(8, 0));
}

TEST(HostThreadPoolTest, SurvivesMoreCallersThanItHasSlots) {
  HostThreadPool pool(2);
  constexpr int kCallers = 80;
  std::atomic<int> inside{0};
  std::atomic<int> chunks{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < kCallers; ++c) {
    callers.emplace_back([&] {
      ++inside;
      while (inside < kCallers) std::this_thread::yield();
      pool.run(3, [&](std::size_t) {
        std::this_thread::sleep_for(microseconds(500));
        ++chunks;
      });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(chunks.load(), 3 * kCallers);
}

TEST(HostThreadPoolTest, RunsJobsFromWithinChunks) {
  HostThreadPool pool(3);
  std::atomic<int> inner{0};
  pool.run(6, [&](std::size_t) {
    pool.run(4, [&](std::size_t) { pool.run(2, [&](std::size_t) { ++inner; }); });
  });
  EXPECT_EQ(inner.load(), 6 * 4 * 2);
}

TEST(HostThreadPoolTest, WaitingThreadsHelp) {
  HostThreadPool pool(1);  // no threads of its own, so whatever is not the caller's is the helper's
  EXPECT_FALSE(pool.help());
  std::atomic<bool> over{false};
  std::atomic<int> helped{0};
  std::thread helper([&] {
    while (!over) {
      if (pool.help()) ++helped;
      std::this_thread::yield();
    }
  });
  int chunks_of_helper = 0;
  const auto caller = std::this_thread::get_id();
  while (chunks_of_helper == 0) {
    std::vector<int> by_other(50, 0);
    pool.run(by_other.size(), [&](std::size_t chunk) {
      by_other[chunk] = std::this_thread::get_id() != caller ? 1 : 0;
      std::this_thread::sleep_for(microseconds(20));
    });
    for (const int other : by_other) chunks_of_helper += other;
  }
  over = true;
  helper.join();
  EXPECT_EQ(helped.load(), chunks_of_helper);
}

TEST(HostThreadPoolTest, KeepsItsPromisesUnderRandomDelays) {
  HostThreadPool pool(4);
  std::atomic<bool> over{false};
  std::vector<std::thread> helpers;
  for (unsigned h = 0; h < 2; ++h) {
    helpers.emplace_back([&, h] {
      std::mt19937 random(100 + h);
      while (!over) {
        if (!pool.help()) std::this_thread::sleep_for(microseconds(random() % 100));
      }
    });
  }
  std::vector<std::thread> callers;
  std::vector<int> wrong(4, 0);
  for (std::size_t c = 0; c < wrong.size(); ++c) {
    callers.emplace_back([&, c] {
      std::mt19937 random(static_cast<unsigned>(c));
      for (int repeat = 0; repeat < 150; ++repeat) {
        const std::size_t num_chunks = 2 + random() % 12;
        const std::size_t slow = random() % num_chunks;
        const auto delay = microseconds(random() % 200);
        Counts counts(num_chunks, 0);
        pool.run(num_chunks, [&](std::size_t chunk) {
          if (chunk == slow) std::this_thread::sleep_for(delay);
          ++counts[chunk];
        });
        if (counts != Counts(num_chunks, 1)) ++wrong[c];
        if (random() % 8 == 0) std::this_thread::sleep_for(microseconds(random() % 300));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  over = true;
  for (std::thread& helper : helpers) helper.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(HostThreadPoolTest, SleepsUntilALateChunkOfAnotherThreadIsDone) {
  HostThreadPool pool(1);
  std::atomic<bool> claimed{false};
  std::thread helper([&] {
    while (!pool.help()) std::this_thread::yield();
  });
  bool late_chunk_done = false;
  const auto caller = std::this_thread::get_id();
  // The caller holds its chunk until the helper has one, and is through long before the helper.
  pool.run(2, [&](std::size_t) {
    if (std::this_thread::get_id() == caller) {
      while (!claimed) std::this_thread::yield();
    } else {
      claimed = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      late_chunk_done = true;
    }
  });
  EXPECT_TRUE(late_chunk_done);
  helper.join();
}

TEST(HostThreadPoolTest, WorksOnCallersAloneAfterStop) {
  HostThreadPool pool(3);
  (void)run_counting(pool, 10);
  pool.stop();
  pool.stop();
  const auto caller = std::this_thread::get_id();
  int elsewhere = 0;
  pool.run(100, [&](std::size_t) { elsewhere += std::this_thread::get_id() != caller ? 1 : 0; });
  EXPECT_EQ(elsewhere, 0);
}

TEST(HostThreadPoolTest, StopsBeforeTheFirstJobAndStartsNoThreadsAfterIt) {
  HostThreadPool pool(3);
  pool.stop();
  const auto caller = std::this_thread::get_id();
  int elsewhere = 0;
  pool.run(100, [&](std::size_t) { elsewhere += std::this_thread::get_id() != caller ? 1 : 0; });
  EXPECT_EQ(elsewhere, 0);
}

TEST(HostThreadPoolTest, StopsWhileJobsRun) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    HostThreadPool pool(4);
    std::atomic<bool> over{false};
    std::vector<int> wrong(2, 0);
    std::vector<std::thread> callers;
    for (std::size_t c = 0; c < wrong.size(); ++c) {
      callers.emplace_back([&, c] {
        while (!over) {
          if (run_counting(pool, 16) != Counts(16, 1)) ++wrong[c];
        }
      });
    }
    std::this_thread::sleep_for(microseconds(200));
    pool.stop();
    over = true;
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(wrong, std::vector<int>(2, 0));
  }
}

TEST(HostThreadPoolTest, RefusesToBeStoppedByItsOwnThread) {
  HostThreadPool pool(2);
  std::atomic<int> refused{0};
  std::atomic<bool> asked{false};
  const auto caller = std::this_thread::get_id();
  pool.run(1U << 20, [&](std::size_t) {
    if (asked) return;
    if (std::this_thread::get_id() == caller) {
      std::this_thread::sleep_for(microseconds(100));  // the other thread has to come
      return;
    }
    try {
      pool.stop();
    } catch (const FailedPreconditionError&) {
      ++refused;
    }
    asked = true;
  });
  EXPECT_EQ(refused.load(), 1);
}

TEST(HostThreadPoolTest, AllocatesNothingAfterTheFirstJob) {
  if (!testing::can_count_allocations()) GTEST_SKIP() << "the sanitizer has a heap of its own";
  HostThreadPool pool(3);
  std::atomic<int> sum{0};
  pool.run(8, [&](std::size_t) { ++sum; });
  const std::size_t before = testing::num_allocations_of_this_thread();
  for (int repeat = 0; repeat < 50; ++repeat) pool.run(8, [&](std::size_t) { ++sum; });
  EXPECT_EQ(testing::num_allocations_of_this_thread(), before);
  EXPECT_EQ(sum.load(), 51 * 8);
}

TEST(HostThreadPoolTest, RefusesToHaveNoThreads) { EXPECT_THROW(HostThreadPool(0), ValueError); }

TEST(HostThreadPoolTest, ThrowsInAChildOfForkAndLetsItsDestructorReturn) {
  int status = 0;
  {
    HostThreadPool pool(2);
    (void)run_counting(pool, 4);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      int code = 1;
      try {
        (void)run_counting(pool, 4);
      } catch (const FailedPreconditionError&) {
        code = 0;
      }
      pool.stop();
      pool.~HostThreadPool();  // returns: no thread to join, no lock to wait for
      _exit(code);
    }
    ASSERT_EQ(waitpid(child, &status, 0), child);
  }
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(HostThreadPoolTest, HasOneInstanceOfTheSizeTheEnvironmentOrTheMachineSays) {
  HostThreadPool& pool = HostThreadPool::instance();
  EXPECT_EQ(&pool, &HostThreadPool::instance());
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  const int wanted = environment().num_threads;
  EXPECT_EQ(pool.num_threads(), static_cast<std::size_t>(wanted > 0 ? wanted : CPU_COUNT(&mask)));
  EXPECT_EQ(run_counting(pool, 33), Counts(33, 1));
}

}  // namespace
}  // namespace crossdevice
