// SPDX-License-Identifier: Apache-2.0
// The end of the library's threads, and what a child of fork() may still do. Both are for the life of a process, so each test
// has one of its own.
#include "crossdevice/device/shutdown.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/host_thread_pool.h"
#include "crossdevice/device/memory_pool.h"
#include "crossdevice/device/progress.h"
#include "crossdevice/device/stream.h"
#include "crossdevice/device/tensor.h"
#include "crossdevice/device/work.h"

namespace crossdevice {
namespace {

// Runs inside a process of its own and ends it: the first line whose claim is wrong is its exit status, 0 if there is none.
#define CLAIM(condition)                                               \
  do {                                                                 \
    if (!(condition)) {                                                \
      std::fprintf(stderr, "line %d: not %s\n", __LINE__, #condition); \
      _exit(1);                                                        \
    }                                                                  \
  } while (false)

template <class Error, class F>
bool throws(const F& f) {
  try {
    f();
  } catch (const Error&) {
    return true;
  }
  return false;
}

#define EXPECT_ALL_CLAIMS(function)                                     \
  GTEST_FLAG_SET(death_test_style, "threadsafe"); /* a fresh process */ \
  EXPECT_EXIT((alarm(60), function(), _exit(0)), ::testing::ExitedWithCode(0), "")

int exit_status_of(pid_t child) {
  int status = 0;
  CLAIM(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::size_t num_threads() {  // of this process, as the kernel counts them
  std::size_t count = 0;
  std::FILE* status = std::fopen("/proc/self/status", "r");
  CLAIM(status != nullptr);
  char line[256];
  while (std::fgets(line, sizeof line, status) != nullptr) {
    unsigned long threads = 0;
    if (std::sscanf(line, "Threads: %lu", &threads) == 1) count = threads;
  }
  std::fclose(status);
  return count;
}

void queued_work_runs_and_the_progress_stream_ends() {
  Stream own("CPU:0", "own");  // first, because a sanitizer adds a thread of its own to the first
  own.launch([] {});
  own.synchronize(Deadline::never());
  const std::size_t before = num_threads();
  int runs = 0;
  for (int i = 0; i < 100; ++i) progress_stream().launch([&] { ++runs; });
  CLAIM(&progress_stream() == &progress_stream());
  CLAIM(num_threads() == before + 1);
  shutdown();
  CLAIM(runs == 100);
  // A joined thread may be counted for a moment longer; alarm() ends this if it does not go.
  while (num_threads() != before) std::this_thread::yield();
  shutdown();
  CLAIM(throws<FailedPreconditionError>([] { progress_stream().launch([] {}); }));
  progress_stream().synchronize(Deadline::never());
  // The program's own stream is the program's to end.
  own.launch([&] { ++runs; });
  own.synchronize(Deadline::never());
  CLAIM(runs == 101);
  CLAIM(Device("CPU:7").is_present());
}

TEST(ShutdownTest, QueuedWorkRunsAndTheProgressStreamEnds) {
  EXPECT_ALL_CLAIMS(queued_work_runs_and_the_progress_stream_ends);
}

void the_thread_pool_ends_and_its_jobs_run_on_their_callers() {
  Stream own("CPU:0", "own");  // first, because a sanitizer adds a thread of its own to the first
  own.launch([] {});
  own.synchronize(Deadline::never());
  const std::size_t before = num_threads();
  HostThreadPool& pool = HostThreadPool::instance();
  std::atomic<int> runs = 0;
  pool.run(8, [&](std::size_t) { ++runs; });
  CLAIM(runs == 8);
  CLAIM(num_threads() == before + pool.num_threads() - 1);
  shutdown();
  while (num_threads() != before) std::this_thread::yield();
  const std::thread::id caller = std::this_thread::get_id();
  pool.run(8, [&](std::size_t) { runs += std::this_thread::get_id() == caller ? 1 : 100; });
  CLAIM(runs == 16);
}

TEST(ShutdownTest, TheThreadPoolEndsAndItsJobsRunOnTheirCallers) {
  EXPECT_ALL_CLAIMS(the_thread_pool_ends_and_its_jobs_run_on_their_callers);
}

void a_progress_stream_that_comes_after_it_starts_out_stopped() {
  shutdown();
  CLAIM(throws<FailedPreconditionError>([] { progress_stream().launch([] {}); }));
}

TEST(ShutdownTest, AProgressStreamThatComesAfterItStartsOutStopped) {
  EXPECT_ALL_CLAIMS(a_progress_stream_that_comes_after_it_starts_out_stopped);
}

void every_caller_returns_after_the_end() {
  std::atomic<int> runs = 0;
  for (int i = 0; i < 50; ++i) {
    progress_stream().launch([&] {
      std::this_thread::yield();
      ++runs;
    });
  }
  std::vector<std::thread> threads;
  std::atomic<int> early = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      shutdown();
      if (runs != 50) ++early;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CLAIM(early == 0);
}

TEST(ShutdownTest, EveryCallerReturnsAfterTheEnd) {
  EXPECT_ALL_CLAIMS(every_caller_returns_after_the_end);
}

void a_thread_of_the_library_cannot_end_itself() {
  bool refused = false;
  progress_stream().launch([&] { refused = throws<FailedPreconditionError>([] { shutdown(); }); });
  progress_stream().synchronize(Deadline::never());
  CLAIM(refused);
  shutdown();
}

TEST(ShutdownTest, AThreadOfTheLibraryCannotEndItself) {
  EXPECT_ALL_CLAIMS(a_thread_of_the_library_cannot_end_itself);
}

std::string stops;

void what_was_added_last_stops_first() {
  detail::stop_at_shutdown([] { stops += 'a'; });
  detail::stop_at_shutdown([] { stops += 'b'; });
  CLAIM(stops.empty());
  shutdown();
  CLAIM(stops == "ba");
  detail::stop_at_shutdown([] { stops += 'c'; });
  CLAIM(stops == "bac");
}

TEST(ShutdownTest, WhatWasAddedLastStopsFirst) {
  EXPECT_ALL_CLAIMS(what_was_added_last_stops_first);
}

void a_child_of_a_user_is_refused_everywhere_and_hangs_nowhere() {
  CLAIM(!detail::is_forked_child());
  CLAIM(Device("CPU:0") == Device("cpu:0"));
  auto stream = std::make_unique<Stream>("CPU:0", "parent");
  std::atomic_flag open;
  stream->launch([] {});
  const Event past = stream->record();
  past.wait(Deadline::never());
  stream->launch([&] { open.wait(false); });
  const Event future = stream->record();
  const auto state = std::make_shared<detail::WorkState>(2);
  CLAIM(state->start());
  state->complete_item(1);
  auto work = std::make_unique<Work>(state);
  Stream idle("CPU:0", "idle");
  idle.launch([] {});
  idle.synchronize(Deadline::never());
  float element = 0;
  HostThreadPool used_pool(2);
  used_pool.run(2, [](std::size_t) {});

  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    using Refused = FailedPreconditionError;
    CLAIM(detail::is_forked_child());
    CLAIM(throws<Refused>([] { detail::require_not_forked(); }));
    CLAIM(throws<Refused>([&] { stream->launch([] {}); }));
    CLAIM(throws<Refused>([&] { stream->synchronize(Deadline::never()); }));
    CLAIM(throws<Refused>([&] { stream->stop(); }));
    CLAIM(throws<Refused>([&] { future.wait(Deadline::never()); }));
    CLAIM(throws<Refused>([] { progress_stream().launch([] {}); }));
    CLAIM(throws<Refused>([&] { work->wait(); }));
    CLAIM(throws<Refused>([&] { (void)state->wait_for_completed(1, Deadline::never()); }));
    CLAIM(throws<Refused>([&] { (void)state->wait_for_item(0, Deadline::never()); }));
    // What would not wait, but takes a lock that a thread of the parent may have held.
    CLAIM(throws<Refused>([&] { idle.synchronize(Deadline::never()); }));
    CLAIM(throws<Refused>([&] { work->cancel(); }));
    CLAIM(throws<Refused>([&] { (void)Tensor::view(std::span(&element, 1), "CPU:0"); }));
    CLAIM(throws<Refused>([] { (void)MemoryPool::of("CPU:0"); }));
    CLAIM(throws<Refused>([] { (void)HostThreadPool::instance(); }));
    CLAIM(throws<Refused>([&] { (void)used_pool.help(); }));
    // What needs no thread can still be asked.
    CLAIM(past.has_completed() && !future.has_completed());
    past.wait(Deadline::never());
    CLAIM(state->wait_for_item(1, Deadline::never()));
    CLAIM(Device("cpu:0") == Device("CPU:0"));
    // A name that is new would take a lock, and that may be held for ever.
    CLAIM(throws<Refused>([] { Device("/job:new"); }));
    CLAIM(throws<Refused>([] { (void)Devices{"CPU:0", "CPU:0"}; }));
    work.reset();
    stream.reset();
    shutdown();
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      CLAIM(throws<Refused>([] { detail::require_not_forked(); }));
      _exit(0);
    }
    _exit(exit_status_of(grandchild));
  }
  CLAIM(child > 0);
  CLAIM(exit_status_of(child) == 0);
  // The parent goes on as before.
  CLAIM(!detail::is_forked_child());
  open.test_and_set();
  open.notify_all();
  stream->synchronize(Deadline::never());
  state->finish(nullptr);
  work->wait();
}

TEST(ForkTest, AChildOfAUserIsRefusedEverywhereAndHangsNowhere) {
  EXPECT_ALL_CLAIMS(a_child_of_a_user_is_refused_everywhere_and_hangs_nowhere);
}

void a_child_from_before_the_first_use_is_a_process_like_any_other() {
  // Names are no use of the library: a program may have them as constants.
  const Devices named{"CPU:0", "CPU:1"};
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    int runs = 0;
    Stream stream(named[1], "child");
    stream.launch([&] { ++runs; });
    stream.synchronize(Deadline::never());
    progress_stream().launch([&] { ++runs; });
    shutdown();
    CLAIM(runs == 2);
    _exit(0);
  }
  CLAIM(exit_status_of(child) == 0);
}

TEST(ForkTest, AChildFromBeforeTheFirstUseIsAProcessLikeAnyOther) {
  EXPECT_ALL_CLAIMS(a_child_from_before_the_first_use_is_a_process_like_any_other);
}

}  // namespace
}  // namespace crossdevice
