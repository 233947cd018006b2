// SPDX-License-Identifier: Apache-2.0
// Streams on hosts: order, events across streams, errors, deadlines, ends.
#include "crossdevice/device/stream.h"

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/device/gpu_platform.h"

#include "support/allocation_counter.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

using crossdevice::testing::thrown;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Holds up a stream until it is opened (which its destructor does, so that a failed test ends).
class Gate {
 public:
  Gate() = default;
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() {
    open_->test_and_set();
    open_->notify_all();
  }
  // Returns when the stream's thread stands before the gate.
  void hold(Stream& stream) {
    const auto arrived = std::make_shared<std::atomic_flag>();
    stream.launch([arrived, open = open_] {
      arrived->test_and_set();
      arrived->notify_all();
      open->wait(false);
    });
    arrived->wait(false);
  }
  // The same at the end of the queue, without waiting for the thread to come there.
  void enqueue(Stream& stream) {
    stream.launch([open = open_] { open->wait(false); });
  }

 private:
  std::shared_ptr<std::atomic_flag> open_ = std::make_shared<std::atomic_flag>();
};

// Collects what the library says while it lives.
class LogCapture {
 public:
  LogCapture() {
    set_log_sink([this](LogSeverity, std::string_view message) { messages.emplace_back(message); });
  }
  ~LogCapture() { set_log_sink(nullptr); }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  std::vector<std::string> messages;  // guarded by the log: one call at a time
};

Deadline soon() { return Deadline::after(std::chrono::milliseconds(5)); }

TEST(StreamTest, TasksRunInOrderOnOneThreadThatIsNotTheCallers) {
  Stream stream("CPU:0", "order");
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  for (int i = 0; i < 1000; ++i) {
    stream.launch([&, i] {
      order.push_back(i);
      threads.push_back(std::this_thread::get_id());
    });
  }
  stream.synchronize(Deadline::never());
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
    EXPECT_EQ(threads[static_cast<std::size_t>(i)], threads[0]);
  }
  EXPECT_NE(threads[0], std::this_thread::get_id());
}

TEST(StreamTest, NothingToWaitForIsNoWait) {
  Stream stream("CPU:0", "empty");
  stream.synchronize(Deadline::after(std::chrono::seconds(0)));
  EXPECT_TRUE(stream.record().has_completed());
  stream.stop();
}

TEST(StreamTest, ADeviceThatIsNotPresentIsRefused) {
  EXPECT_EQ(thrown<ValueError>([] { const Stream stream("GPU:0", "x"); }),
            "GPU:0: this host has 0 GPUs: " + detail::gpu_platform().reason_against);
}

TEST(StreamTest, AnEmptyTaskIsRefusedAndNothingIsEnqueued) {
  Stream stream("CPU:0", "x");
  EXPECT_THROW(stream.launch(nullptr), ValueError);
  stream.synchronize(Deadline::never());
}

TEST(StreamTest, ItsThreadIsNamedAndDeafToSignalsButNotToItsOwnFaults) {
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, nullptr, &before);
  Stream stream("CPU:0", "a name longer than fifteen");
  std::array<char, 32> name{};
  sigset_t inside;
  stream.launch([&] {
    pthread_getname_np(pthread_self(), name.data(), name.size());
    pthread_sigmask(SIG_BLOCK, nullptr, &inside);
  });
  stream.synchronize(Deadline::never());
  EXPECT_STREQ(name.data(), "a name longer t");
  for (const int sent : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGUSR1, SIGUSR2, SIGALRM, SIGPIPE}) {
    EXPECT_EQ(sigismember(&inside, sent), 1) << sent;
  }
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    EXPECT_EQ(sigismember(&inside, fault), 0) << fault;
  }
  sigset_t after;
  pthread_sigmask(SIG_BLOCK, nullptr, &after);
  for (int number = 1; number < SIGRTMAX; ++number) {
    EXPECT_EQ(sigismember(&before, number), sigismember(&after, number)) << number;
  }
}

TEST(StreamTest, TheFirstErrorIsThrownOnceAndLaterTasksRunAllTheSame) {
  LogCapture log;
  Stream stream("CPU:0", "errors");
  bool ran = false;
  stream.launch([] { throw std::runtime_error("first"); });
  stream.launch([] { throw std::runtime_error("second"); });
  stream.launch([&] { ran = true; });
  EXPECT_EQ(thrown<std::runtime_error>([&] { stream.synchronize(Deadline::never()); }), "first");
  EXPECT_TRUE(ran);
  EXPECT_NO_THROW(stream.synchronize(Deadline::never()));
  EXPECT_THAT(log.messages, ElementsAre(AllOf(HasSubstr("\"errors\""), HasSubstr("second"))));

  stream.launch([] { throw 42; });
  EXPECT_THROW(stream.synchronize(Deadline::never()), int);
}

TEST(StreamTest, ALogSinkMayUseTheStreamThatFailed) {
  Stream stream("CPU:0", "sink");
  std::atomic<int> runs = 0;
  set_log_sink([&](LogSeverity, std::string_view) { stream.launch([&] { ++runs; }); });
  stream.launch([] { throw std::runtime_error("first"); });
  stream.launch([] { throw std::runtime_error("second"); });
  EXPECT_THROW(stream.synchronize(Deadline::never()), std::runtime_error);
  stream.synchronize(Deadline::never());
  set_log_sink({});
  EXPECT_EQ(runs, 1);
}

TEST(StreamTest, AnErrorThatNobodyFetchesIsLogged) {
  LogCapture log;
  {
    Stream stream("CPU:0", "careless");
    stream.launch([] { throw std::runtime_error("lost"); });
  }
  EXPECT_THAT(log.messages, ElementsAre(AllOf(HasSubstr("\"careless\""), HasSubstr("lost"))));
}

TEST(StreamTest, SynchronizeEndsAtItsDeadlineAndTheWorkGoesOn) {
  Stream stream("CPU:0", "slow");
  Gate gate;
  gate.hold(stream);
  bool ran = false;
  stream.launch([&] { ran = true; });
  EXPECT_THAT(thrown<DeadlineExceededError>([&] { stream.synchronize(soon()); }),
              AllOf(HasSubstr("\"slow\""), HasSubstr("0 of 2 tasks")));
  gate.open();
  stream.synchronize(Deadline::never());
  EXPECT_TRUE(ran);
}

TEST(StreamTest, WhatATaskCapturedIsGoneWhenItCountsAsFinished) {
  Stream stream("CPU:0", "captures");
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = held;
  stream.launch([held = std::move(held)] {});
  stream.synchronize(Deadline::never());
  EXPECT_TRUE(watched.expired());
}

TEST(StreamTest, TheDestructorRunsWhatIsQueued) {
  int runs = 0;
  {
    Stream stream("CPU:0", "queued");
    for (int i = 0; i < 500; ++i) stream.launch([&] { ++runs; });
  }
  EXPECT_EQ(runs, 500);
}

TEST(StreamTest, TasksMayEnqueueTasksAndTheDestructorOfABusyStreamTakesThemToo) {
  std::atomic<int> runs = 0;
  {
    Stream stream("CPU:0", "nested");
    for (int i = 0; i < 100; ++i) {
      stream.launch([&] {
        ++runs;
        stream.launch([&] { ++runs; });
      });
    }
    stream.synchronize(Deadline::never());
  }
  EXPECT_EQ(runs, 200);
}

TEST(StreamTest, AStreamThatItsOwnThreadDropsRunsOutThere) {
  auto stream = std::make_shared<Stream>("CPU:0", "suicidal");
  const auto last = std::make_shared<std::promise<void>>();
  Gate gate;
  gate.hold(*stream);
  stream->launch([stream] {});  // releases the last handle, on the stream's thread
  stream->launch([last] { last->set_value(); });
  stream.reset();
  gate.open();
  last->get_future().get();
}

TEST(StreamTest, ItsOwnThreadCannotWaitForItself) {
  Stream stream("CPU:0", "selfish");
  EXPECT_FALSE(stream.is_current());
  bool inside = false;
  std::vector<std::string> errors;
  stream.launch([&] {
    inside = stream.is_current();
    const Event later = stream.record();
    errors.push_back(thrown<FailedPreconditionError>(
        [&] { stream.synchronize(Deadline::after(std::chrono::hours(1))); }));
    errors.push_back(thrown<FailedPreconditionError>([&] { later.wait(Deadline::never()); }));
    errors.push_back(thrown<FailedPreconditionError>([&] { stream.stop(); }));
  });
  stream.synchronize(Deadline::never());
  EXPECT_TRUE(inside);
  EXPECT_THAT(errors, ::testing::Each(HasSubstr("\"selfish\": its own thread cannot")));
  EXPECT_EQ(errors.size(), 3u);
  Stream other("CPU:0", "other");
  other.launch([&] { inside = stream.is_current(); });
  other.synchronize(Deadline::never());
  EXPECT_FALSE(inside);
}

TEST(StreamTest, AStoppedStreamHasRunEverythingAndTakesNoMore) {
  Stream stream("CPU:0", "stopped");
  int runs = 0;
  for (int i = 0; i < 100; ++i) stream.launch([&] { ++runs; });
  const Event event = stream.record();
  stream.stop();
  stream.stop();
  EXPECT_EQ(runs, 100);
  EXPECT_TRUE(event.has_completed());
  EXPECT_THAT(thrown<FailedPreconditionError>([&] { stream.launch([] {}); }),
              HasSubstr("\"stopped\": it was stopped"));
  EXPECT_NO_THROW(stream.synchronize(Deadline::never()));
}

TEST(StreamTest, MovingKeepsTheQueueAndAssigningEndsTheOldOne) {
  int first = 0;
  int second = 0;
  Stream a("CPU:0", "a");
  Gate gate;
  gate.hold(a);
  a.launch([&] { ++first; });
  Stream b(std::move(a));
  b.launch([&] { ++first; });
  gate.open();
  Stream c("CPU:1", "c");
  c.launch([&] { ++second; });
  c = std::move(b);
  EXPECT_EQ(second, 1);  // the old queue of c has run out
  c.launch([&] { ++first; });
  c.synchronize(Deadline::never());
  EXPECT_EQ(first, 3);
}

TEST(EventTest, OneThatWasNeverRecordedHasCompleted) {
  const Event event;
  EXPECT_TRUE(event.has_completed());
  event.wait(Deadline::never());
  Stream stream("CPU:0", "x");
  stream.wait(event);
  stream.synchronize(Deadline::never());
}

TEST(EventTest, CompletesWithWhatWasEnqueuedBeforeItAndNotEarlier) {
  Stream stream("CPU:0", "events");
  Gate first;
  Gate second;
  const Event none = stream.record();
  first.hold(stream);
  const Event after_first = stream.record();
  second.enqueue(stream);
  const Event after_second = stream.record();
  EXPECT_TRUE(none.has_completed());
  EXPECT_FALSE(after_first.has_completed());
  EXPECT_THROW(after_first.wait(soon()), DeadlineExceededError);
  first.open();
  after_first.wait(Deadline::never());
  EXPECT_TRUE(after_first.has_completed());
  EXPECT_FALSE(after_second.has_completed());
  second.open();
  after_second.wait(Deadline::never());
  EXPECT_TRUE(after_second.has_completed());
}

TEST(EventTest, OutlivesItsStream) {
  Event event;
  {
    Stream stream("CPU:0", "short-lived");
    stream.launch([] {});
    event = stream.record();
  }
  EXPECT_TRUE(event.has_completed());
  event.wait(Deadline::never());
}

TEST(EventTest, HoldsUpAnotherStream) {
  Stream producer("CPU:0", "producer");
  Stream consumer("CPU:1", "consumer");
  Gate gate;
  int value = 0;
  int seen = -1;
  gate.hold(producer);
  producer.launch([&] { value = 7; });
  consumer.wait(producer.record());
  consumer.launch([&] { seen = value; });
  EXPECT_THROW(consumer.synchronize(soon()), DeadlineExceededError);
  EXPECT_EQ(seen, -1);
  gate.open();
  consumer.synchronize(Deadline::never());
  EXPECT_EQ(seen, 7);
}

TEST(EventTest, AFailedTaskCompletesItTooAndTheErrorStaysWithItsStream) {
  Stream producer("CPU:0", "producer");
  Stream consumer("CPU:1", "consumer");
  producer.launch([] { throw std::runtime_error("mine"); });
  consumer.wait(producer.record());
  EXPECT_NO_THROW(consumer.synchronize(Deadline::never()));
  EXPECT_EQ(thrown<std::runtime_error>([&] { producer.synchronize(Deadline::never()); }), "mine");
}

// Streams hand a plain counter round and round: each step is ordered by events alone.
TEST(EventTest, AChainThroughManyStreamsIsOneOrder) {
  std::vector<Stream> streams;
  for (int i = 0; i < 4; ++i) streams.emplace_back("CPU:0", "chain" + std::to_string(i));
  std::vector<int> log;
  Event last;
  for (int step = 0; step < 2000; ++step) {
    Stream& stream = streams[static_cast<std::size_t>(step * 7 % 4)];
    stream.wait(last);
    stream.launch([&log, step] { log.push_back(step); });
    last = stream.record();
  }
  last.wait(Deadline::never());
  ASSERT_EQ(log.size(), 2000u);
  for (int step = 0; step < 2000; ++step) EXPECT_EQ(log[static_cast<std::size_t>(step)], step);
}

// Threads launch, record and wait for each other's events at random. A task that waited for an event must find everything
// done that lay before it; crosswise waits must not lock up.
TEST(StreamStress, RandomEventsBetweenStreamsAreKept) {
  constexpr std::size_t kStreams = 3;
  constexpr int kSteps = 400;
  std::vector<Stream> streams;
  for (std::size_t i = 0; i < kStreams; ++i) streams.emplace_back("CPU:0", "s" + std::to_string(i));
  struct Mark {
    Event event;
    std::size_t stream = 0;
    int done_before = 0;
  };
  std::array<std::atomic<int>, kStreams> num_done{};
  std::array<int, kStreams> num_launched{};  // with `latest`, guarded by `mutex`
  Mark latest;
  std::mutex mutex;
  std::atomic<int> wrong = 0;
  const auto body = [&](std::size_t self) {
    std::mt19937 random(static_cast<unsigned>(self));
    for (int step = 0; step < kSteps; ++step) {
      const std::size_t target = random() % kStreams;
      const std::scoped_lock lock(mutex);
      const Mark mark = latest;
      streams[target].wait(mark.event);
      streams[target].launch([&, mark, target] {
        if (num_done[mark.stream].load(std::memory_order_relaxed) < mark.done_before) ++wrong;
        num_done[target].fetch_add(1, std::memory_order_relaxed);
      });
      latest = {streams[target].record(), target, ++num_launched[target]};
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 3; ++t) threads.emplace_back(body, t);
  for (std::thread& thread : threads) thread.join();
  int total = 0;
  for (std::size_t i = 0; i < kStreams; ++i) {
    streams[i].synchronize(Deadline::never());
    total += num_done[i];
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(total, 3 * kSteps);
}

TEST(StreamStress, LaunchesFromManyThreadsAllRunInEachThreadsOrder) {
  constexpr std::size_t kThreads = 4;
  constexpr int kTasks = 3000;
  std::array<int, kThreads> next{};  // touched by the stream's thread only
  int wrong = 0;
  {
    Stream stream("CPU:0", "many");
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kTasks; ++i) {
          stream.launch([&, t, i] { wrong += next[t]++ == i ? 0 : 1; });
          if (i % 500 == 0) stream.synchronize(Deadline::never());
          if (i % 700 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(wrong, 0);
  for (const int count : next) EXPECT_EQ(count, kTasks);
}

TEST(StreamStress, StopWhileOthersLaunchRunsExactlyWhatWasTaken) {
  for (int round = 0; round < 50; ++round) {
    Stream stream("CPU:0", "race");
    std::atomic<int> taken = 0;
    std::atomic<int> runs = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        try {
          for (;;) {
            stream.launch([&] { ++runs; });
            ++taken;
          }
        } catch (const FailedPreconditionError&) {
        }
      });
    }
    while (taken < round) std::this_thread::yield();
    std::thread second([&] { stream.stop(); });
    stream.stop();
    const int runs_at_stop = runs;
    second.join();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(runs, runs_at_stop);
    EXPECT_EQ(runs, taken);
  }
}

TEST(StreamTest, SteadyStateAllocatesNothingForSmallTasks) {
  if (!testing::can_count_allocations()) GTEST_SKIP() << "the heap is a sanitizer's";
  Stream stream("CPU:0", "steady");
  std::size_t sum = 0;
  const auto burst = [&] {
    for (int i = 0; i < 100; ++i) stream.launch([&sum] { ++sum; });
    const Event event = stream.record();
    event.wait(Deadline::never());
    stream.synchronize(Deadline::never());
  };
  // The queue's two halves trade places each time the thread takes what there is. A round takes twice, and the lone task in
  // between makes it odd, so that each half gets to hold more than a burst.
  for (int round = 0; round < 2; ++round) {
    Gate gate;
    gate.hold(stream);
    for (int i = 0; i < 200; ++i) stream.launch([&sum] { ++sum; });
    gate.open();
    stream.synchronize(Deadline::never());
    stream.launch([&sum] { ++sum; });
    stream.synchronize(Deadline::never());
  }
  std::size_t on_thread_before = 0;
  std::size_t on_thread_after = 0;
  stream.launch([&] { on_thread_before = testing::num_allocations_of_this_thread(); });
  const std::size_t before = testing::num_allocations_of_this_thread();
  for (int i = 0; i < 20; ++i) burst();
  EXPECT_EQ(testing::num_allocations_of_this_thread() - before, 0u);
  stream.launch([&] { on_thread_after = testing::num_allocations_of_this_thread(); });
  stream.synchronize(Deadline::never());
  EXPECT_EQ(on_thread_after, on_thread_before);
  EXPECT_EQ(sum, 2u * 201u + 20u * 100u);
}

}  // namespace
}  // namespace crossdevice
