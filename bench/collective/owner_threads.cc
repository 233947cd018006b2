// SPDX-License-Identifier: Apache-2.0
/// Hands one task at a time to sleeping threads.
#include "collective/owner_threads.h"

namespace crossdevice::bench {

OwnerThreads::OwnerThreads(std::size_t num_owners) {
  if (num_owners < 2) return;
  for (std::size_t owner = 0; owner < num_owners; ++owner) {
    threads_.emplace_back([this, owner] { serve(owner); });
  }
}

OwnerThreads::~OwnerThreads() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  task_changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void OwnerThreads::for_each_owner(const std::function<void(std::size_t)>& task) {
  if (threads_.empty()) {
    task(0);
    return;
  }
  std::unique_lock lock(mutex_);
  task_ = &task;
  ++task_number_;
  num_running_ = threads_.size();
  task_changed_.notify_all();
  all_finished_.wait(lock, [this] { return num_running_ == 0; });
}

void OwnerThreads::serve(std::size_t owner) {
  std::uint64_t last_task = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    task_changed_.wait(lock, [&] { return stopping_ || task_number_ != last_task; });
    if (stopping_) return;
    last_task = task_number_;
    const std::function<void(std::size_t)>& task = *task_;
    lock.unlock();
    task(owner);
    lock.lock();
    if (--num_running_ == 0) all_finished_.notify_one();
  }
}

}  // namespace crossdevice::bench
