// SPDX-License-Identifier: Apache-2.0
/// What a watched operation has failed with, for the test that waits for it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>

#include "crossdevice/comm/gpu_watchdog.h"
#include "crossdevice/core/exception_text.h"

namespace crossdevice::testing {

/// What `failed` was given, for whoever waits for it.
class Failure {
 public:
  std::function<void(std::exception_ptr)> callback() {
    return [this](const std::exception_ptr& error) {
      const std::lock_guard lock(mutex_);
      ++count_;
      error_ = error;
      is_watchdog_ = detail::is_watchdog_thread();
      changed_.notify_all();
    };
  }
  [[nodiscard]] bool await(std::chrono::nanoseconds limit = std::chrono::seconds(30)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return count_ > 0; });
  }
  [[nodiscard]] std::exception_ptr error() {
    const std::lock_guard lock(mutex_);
    return error_;
  }
  [[nodiscard]] std::string text() { return detail::exception_text(error()); }
  [[nodiscard]] int count() {
    const std::lock_guard lock(mutex_);
    return count_;
  }
  [[nodiscard]] bool was_on_watchdog() {
    const std::lock_guard lock(mutex_);
    return is_watchdog_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
  std::exception_ptr error_;
  bool is_watchdog_ = false;
};

}  // namespace crossdevice::testing
