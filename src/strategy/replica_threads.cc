// SPDX-License-Identifier: Apache-2.0
// Handing a body to threads that wait for the next one.
#include "strategy/detail/replica_threads.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <signal.h>

#include "crossdevice/core/service_thread.h"
#include "crossdevice/device/shutdown.h"

namespace crossdevice::detail {

namespace {

// Watching for the next run, or for the last replica's return, before sleeping: steps of a training loop follow each other closely.
constexpr int kYields = 50;

}  // namespace

struct ReplicaThreads::State {
  explicit State(std::size_t replicas) : num_replicas(replicas) {}

  /// A replica thread's life: `seen` is the run it was started after.
  static void serve(const std::shared_ptr<State>& state, std::size_t replica, std::uint64_t seen);

  const std::size_t num_replicas;
  std::vector<std::thread> threads;  // the caller's: one run at a time
  std::mutex mutex;
  std::condition_variable begin;
  std::condition_variable end;
  std::optional<ChunkBody> body;             // guarded by mutex; set while a run is in progress
  bool stop = false;                         // guarded by mutex
  std::atomic<std::uint64_t> run = 0;        // written under mutex; watched without
  std::atomic<std::size_t> num_running = 0;  // likewise
};

void ReplicaThreads::State::serve(const std::shared_ptr<State>& state, std::size_t replica,
                                  std::uint64_t seen) {
  for (;;) {
    for (int i = 0; i < kYields && state->run.load(std::memory_order_relaxed) == seen; ++i) {
      std::this_thread::yield();
    }
    std::unique_lock lock(state->mutex);
    state->begin.wait(lock, [&] { return state->stop || state->run.load() != seen; });
    if (state->run.load() == seen) return;  // stopped, and no run is left to serve
    seen = state->run.load();
    const ChunkBody body = *state->body;
    lock.unlock();
    body(replica);
    // A child of fork() that returns from its replica has nobody to return to, and the lock may be held for ever: its only thread ends,
    // and the process with it.
    if (is_forked_child()) return;
    lock.lock();
    if (state->num_running.fetch_sub(1) == 1) state->end.notify_one();
  }
}

ReplicaThreads::ReplicaThreads(std::size_t num_replicas)
    : state_(std::make_shared<State>(num_replicas)) {}

ReplicaThreads::~ReplicaThreads() {
  State& state = *state_;
  if (is_forked_child()) {  // the threads did not come along, and the lock may be held for ever
    for (std::thread& thread : state.threads) thread.detach();
    return;
  }
  {
    const std::lock_guard lock(state.mutex);
    state.stop = true;
    state.begin.notify_all();
  }
  for (std::thread& thread : state.threads) thread.join();
}

void ReplicaThreads::start_missing_threads() {
  State& state = *state_;
  if (state.threads.size() + 1 >= state.num_replicas) return;
  state.threads.reserve(state.num_replicas - 1);
  while (state.threads.size() + 1 < state.num_replicas) {
    const std::size_t replica = state.threads.size() + 1;
    // Profilers see replicas, which run the program's code.
    state.threads.push_back(
        start_service_thread("cd-replica-" + std::to_string(replica),
                             [shared = state_, replica, seen = state.run.load()] {
                               State::serve(shared, replica, seen);
                             },
                             {SIGPROF}));
  }
}

void ReplicaThreads::run(ChunkBody body) {
  if (state_->num_replicas == 1) {
    body(0);
    return;
  }
  State& state = *state_;
  start_missing_threads();
  {
    const std::lock_guard lock(state.mutex);
    state.body = body;
    state.num_running.store(state.num_replicas - 1);
    state.run.fetch_add(1);
    state.begin.notify_all();
  }
  body(0);
  require_not_forked();
  for (int i = 0; i < kYields && state.num_running.load(std::memory_order_relaxed) > 0; ++i) {
    std::this_thread::yield();
  }
  std::unique_lock lock(state.mutex);
  state.end.wait(lock, [&] { return state.num_running.load() == 0; });
  state.body.reset();
}

}  // namespace crossdevice::detail
