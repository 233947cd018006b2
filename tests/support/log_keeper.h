// SPDX-License-Identifier: Apache-2.0
/// What is said on the log.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "crossdevice/core/deadline.h"
#include "crossdevice/core/log.h"

namespace crossdevice::testing {

/// Silences the log, and keeps what was said.
class LogKeeper {
 public:
  LogKeeper() {
    set_log_sink([this](LogSeverity severity, std::string_view text) {
      const std::lock_guard lock(mutex_);
      texts_ += std::string(text) + '\n';
      if (severity != LogSeverity::INFO) warnings_ += std::string(text) + '\n';
    });
  }
  ~LogKeeper() { set_log_sink(nullptr); }
  LogKeeper(const LogKeeper&) = delete;
  LogKeeper& operator=(const LogKeeper&) = delete;

  [[nodiscard]] std::string texts() const {
    const std::lock_guard lock(mutex_);
    return texts_;
  }
  /// Those that are more than information.
  [[nodiscard]] std::string warnings() const {
    const std::lock_guard lock(mutex_);
    return warnings_;
  }
  /// Until something has been said that has `part` in it; whether it was.
  [[nodiscard]] bool await(std::string_view part, const Deadline& deadline) const {
    for (;;) {
      if (texts().find(part) != std::string::npos) return true;
      if (deadline.has_passed()) return false;
      std::this_thread::yield();
    }
  }

 private:
  mutable std::mutex mutex_;
  std::string texts_;
  std::string warnings_;
};

}  // namespace crossdevice::testing
