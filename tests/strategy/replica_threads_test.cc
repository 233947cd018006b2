// SPDX-License-Identifier: Apache-2.0
// The threads by themselves: every body once, shutdown, signals, fork.
#include "strategy/detail/replica_threads.h"

#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/shutdown.h"

#include "support/replicas.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)

TEST(ReplicaThreadsTest, EveryReplicasBodyRunsOncePerRun) {
  for (const std::size_t replicas : {1U, 2U, 3U, 8U}) {
    detail::ReplicaThreads threads(replicas);
    std::vector<std::atomic<int>> calls(replicas);
    auto body = [&](std::size_t r) { ++calls[r]; };
    for (int run = 1; run <= 200; ++run) {
      threads.run(detail::ChunkBody(body));
      for (const std::atomic<int>& count : calls) ASSERT_EQ(count.load(), run);
    }
  }
}

TEST(ReplicaThreadsTest, ThreadsThatNeverRanAreDestroyed) {
  const detail::ReplicaThreads threads(4);
}

TEST(ReplicaThreadsTest, SignalsOfTheProcessAreBlockedInReplicasButNotInTheCaller) {
  MirroredStrategy strategy(on_cpus(2));
  const std::vector<bool> blocked = strategy.run([](ReplicaContext&) {
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    return sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGSEGV) == 0;
  });
  EXPECT_FALSE(blocked[0]);
  EXPECT_TRUE(blocked[1]);
}

TEST(ReplicaThreadsTest, ReplicasRunAfterTheLibrarysThreadsHaveEnded) {
  MirroredStrategy strategy(on_cpus(3));
  const auto sum = [](ReplicaContext& context) {
    return elements(context.all_reduce("SUM", scalar_of(1.0F, context.device())))[0];
  };
  EXPECT_EQ(strategy.run(sum), std::vector<float>(3, 3.0F));
  shutdown();
  EXPECT_EQ(strategy.run(sum), std::vector<float>(3, 3.0F));
  MirroredStrategy made_late(on_cpus(2));
  EXPECT_EQ(made_late.run(sum), std::vector<float>(2, 2.0F));
}

/// Exit status of a child that runs `body` and destroys what it inherited.
template <class F>
int status_of_child(F&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

TEST(ReplicaThreadsTest, AChildOfForkIsRefusedAndItsDestructorsEnd) {
  auto strategy = std::make_unique<MirroredStrategy>(on_cpus(3));
  strategy->run([](ReplicaContext&) {});
  const int status = status_of_child([&] {
    try {
      strategy->run([](ReplicaContext&) {});
      return 1;
    } catch (const FailedPreconditionError&) {
    }
    alarm(30);  // a destructor that hangs ends the child by a signal
    strategy.reset();
    return 7;
  });
  EXPECT_EQ(status, 7);
  EXPECT_EQ(strategy->run([](ReplicaContext&) { return 1; }), std::vector<int>(3, 1));
}

TEST(ReplicaThreadsTest, AForkInsideTheFirstReplicaEndsTheChildsRun) {
  MirroredStrategy strategy(on_cpus(2));
  std::atomic<int> status = -1;
  strategy.run([&](ReplicaContext& context) {
    if (context.replica_id_in_sync_group() != 0) return;
    const pid_t child = fork();
    if (child == 0) {
      alarm(30);
      try {
        (void)context.all_reduce("SUM", Tensor::view(static_cast<float*>(nullptr), {0}, "CPU:0"));
      } catch (const FailedPreconditionError&) {
        _exit(7);
      } catch (...) {
        _exit(2);
      }
      _exit(1);
    }
    int result = 0;
    waitpid(child, &result, 0);
    status = WIFEXITED(result) ? WEXITSTATUS(result) : 1000 + result;
  });
  EXPECT_EQ(status.load(), 7);
}

TEST(ReplicaThreadsTest, AChildMadeWhileAReplicaSleepsIsRefusedAndItsDestructorsEnd) {
  auto strategy = std::make_unique<MirroredStrategy>(on_cpus(3));
  std::atomic<int> status = -1;
  const auto fork_and_return = [&](ReplicaContext& context) {
    if (context.replica_id_in_sync_group() == 0) {
      usleep(20000);  // long enough for the others to fall asleep in their call; any time is right
      if (fork() == 0) {
        alarm(30);
        return;  // and so into the end of run, in the child
      }
      int result = 0;
      wait(&result);
      status = WIFEXITED(result) ? WEXITSTATUS(result) : 1000 + result;
    }
    (void)context.all_reduce("SUM", scalar_of(1.0F, context.device()));
  };
  const pid_t parent = getpid();
  const std::string refused =
      thrown<FailedPreconditionError>([&] { strategy->run(fork_and_return); });
  if (getpid() != parent) {
    strategy.reset();
    _exit(refused.empty() ? 1 : 7);
  }
  EXPECT_EQ(status.load(), 7);
  EXPECT_EQ(refused, "");
}

TEST(ReplicaThreadsTest, AChildMadeByAnotherReplicaEndsWithItsBody) {
  MirroredStrategy strategy(on_cpus(2));
  std::atomic<bool> ended = false;
  strategy.run([&](ReplicaContext& context) {
    if (context.replica_id_in_sync_group() != 1) return;
    const pid_t child = fork();
    if (child == 0) {
      sigset_t alarm_only;  // blocked in replicas
      sigemptyset(&alarm_only);
      sigaddset(&alarm_only, SIGALRM);
      pthread_sigmask(SIG_UNBLOCK, &alarm_only, nullptr);
      alarm(30);  // a thread that waits for the next run ends the child by a signal
      return;
    }
    int result = 0;
    waitpid(child, &result, 0);
    ended = WIFEXITED(result);
  });
  EXPECT_TRUE(ended.load());
}

TEST(ReplicaThreadsTest, AChildOfASingleReplicaIsToldToo) {
  MirroredStrategy strategy(on_cpus(1));
  const int status = [&] {
    const pid_t parent = getpid();
    pid_t child = -1;
    const std::string text = thrown<FailedPreconditionError>([&] {
      (void)strategy.run([&](ReplicaContext&) {
        child = fork();
        if (child == 0) throw std::runtime_error("lost");
        return 1;
      });
    });
    if (getpid() != parent) _exit(text.empty() ? 1 : 7);
    int result = 0;
    waitpid(child, &result, 0);
    return WIFEXITED(result) ? WEXITSTATUS(result) : 1000 + result;
  }();
  EXPECT_EQ(status, 7);
}

}  // namespace
}  // namespace crossdevice
