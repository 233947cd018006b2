// SPDX-License-Identifier: Apache-2.0
/// One thread per device, which fills and checks that device's buffers, as the replicas of a training program do. A single device's is the caller.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace crossdevice::bench {

/// Threads   for_each_owner() from one thread at a time. Between calls the threads sleep. A single owner is the calling thread.
class OwnerThreads {
 public:
  explicit OwnerThreads(std::size_t num_owners);
  ~OwnerThreads();
  OwnerThreads(const OwnerThreads&) = delete;
  OwnerThreads& operator=(const OwnerThreads&) = delete;

  /// Runs `task(owner)` on every owner's own thread and returns when all have finished. `task` must not throw.
  void for_each_owner(const std::function<void(std::size_t owner)>& task);

 private:
  void serve(std::size_t owner);

  std::mutex mutex_;  // guards everything below but the threads
  std::condition_variable task_changed_;
  std::condition_variable all_finished_;
  const std::function<void(std::size_t)>* task_ = nullptr;
  std::uint64_t task_number_ = 0;
  std::size_t num_running_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace crossdevice::bench
