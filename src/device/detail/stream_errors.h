// SPDX-License-Identifier: Apache-2.0
/// What the tasks of a stream have thrown.
#pragma once

#include <exception>
#include <mutex>
#include <string>

namespace crossdevice::detail {

/// The first error is kept for whoever fetches it, further ones are logged.
///
/// Threads  any.
class StreamErrors {
 public:
  explicit StreamErrors(std::string stream_name);
  [[nodiscard]] const std::string& stream_name() const { return stream_name_; }
  void keep(std::exception_ptr error);
  /// Throws it once.
  ///
  /// Errors   also FailedPreconditionError: in a child of fork(), where a thread that did not come along may hold the lock.
  void rethrow();
  /// Logs the one that nobody has fetched: the stream ends.
  void warn_of_last() noexcept;

 private:
  void warn(const char* what, const std::exception_ptr& error) const noexcept;

  const std::string stream_name_;
  std::mutex mutex_;
  std::exception_ptr error_;  // guarded by mutex_
};

}  // namespace crossdevice::detail
