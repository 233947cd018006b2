// SPDX-License-Identifier: Apache-2.0
/// Threads of which one runs at a time: the one that has the baton.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <vector>

namespace crossdevice::testing {

/// Who gives the baton away makes what it has done before visible to who gets it.
class Baton {
 public:
  explicit Baton(std::size_t num_threads) : given_(num_threads) {}
  Baton(const Baton&) = delete;
  Baton& operator=(const Baton&) = delete;

  void give(std::size_t to) {
    const std::lock_guard lock(mutex_);
    holder_ = to;
    given_[to].notify_one();
  }
  /// Until it has been given to `me`.
  void await(std::size_t me) {
    std::unique_lock lock(mutex_);
    given_[me].wait(lock, [&] { return holder_ == me; });
    holder_ = given_.size();  // taken
  }

 private:
  std::mutex mutex_;
  std::size_t holder_ = ~std::size_t{0};
  std::vector<std::condition_variable> given_;  // by thread
};

}  // namespace crossdevice::testing
