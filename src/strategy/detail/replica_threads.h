// SPDX-License-Identifier: Apache-2.0
/// One thread per replica, kept from run to run; the caller's own thread serves the first.
#pragma once

#include <cstddef>
#include <memory>

#include "crossdevice/device/host_thread_pool.h"

namespace crossdevice::detail {

/// Threads  one run at a time.
/// Memory   no allocation after the first run.
class ReplicaThreads {
 public:
  explicit ReplicaThreads(std::size_t num_replicas);
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  /// Calls body(replica) for every replica, each on its own thread, and returns when all have returned. `body` must not throw.
  ///
  /// Errors   ResourceExhaustedError: a thread could not be started; then nothing was called. FailedPreconditionError: the body of replica 0 returned in a
  ///          child of fork(), where the other replicas do not exist. (In a child made by another replica the process ends with its body.)
  void run(ChunkBody body);

 private:
  struct State;
  void start_missing_threads();
  // Shared with the threads, so that a child of fork() never destroys what they wait on.
  std::shared_ptr<State> state_;
};

}  // namespace crossdevice::detail
