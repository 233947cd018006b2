// SPDX-License-Identifier: Apache-2.0
/// A value of the process that is found out on first use, unless a test has given it before.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {

/// Threads  any. find() is one load; what it returns stays where it is for good.
template <class Value>
class GivenOrFound {
 public:
  /// `name`: what a message calls it.
  explicit GivenOrFound(std::string name) : name_(std::move(name)) {}

  /// Null until get().
  [[nodiscard]] const Value* find() const { return asked_.load(std::memory_order_acquire); }
  /// Calls `make` unless a value was given or made. What it throws comes through, and nothing is kept.
  template <class Make>
  const Value& get(const Make& make) {
    const std::lock_guard lock(mutex_);
    if (value_ == nullptr) value_ = std::make_unique<const Value>(make());
    asked_.store(value_.get(), std::memory_order_release);
    return *value_;
  }
  /// Errors   FailedPreconditionError: somebody has asked already.
  void give(Value value) {
    const std::lock_guard lock(mutex_);
    if (find() != nullptr) {
      throw FailedPreconditionError(name_ + " can be replaced only before their first use");
    }
    value_ = std::make_unique<const Value>(std::move(value));
  }

 private:
  const std::string name_;
  std::mutex mutex_;  // guards value_
  std::unique_ptr<const Value> value_;
  std::atomic<const Value*> asked_{nullptr};
};

}  // namespace crossdevice::detail
