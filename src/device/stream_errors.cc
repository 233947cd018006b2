// SPDX-License-Identifier: Apache-2.0
// Keeps one error, logs the others.
#include "device/detail/stream_errors.h"

#include <utility>

#include "crossdevice/core/exception_text.h"
#include "crossdevice/core/log.h"
#include "crossdevice/device/shutdown.h"

namespace crossdevice::detail {
StreamErrors::StreamErrors(std::string stream_name) : stream_name_(std::move(stream_name)) {}

void StreamErrors::keep(std::exception_ptr error) {
  {
    const std::scoped_lock lock(mutex_);
    if (error_ == nullptr) {
      error_ = std::move(error);
      return;
    }
  }
  warn("a further error, behind the one that synchronize() will throw", error);
}

void StreamErrors::rethrow() {
  require_not_forked();
  std::exception_ptr error;
  {
    const std::scoped_lock lock(mutex_);
    error = std::exchange(error_, nullptr);
  }
  if (error != nullptr) std::rethrow_exception(error);
}

void StreamErrors::warn_of_last() noexcept {
  std::exception_ptr error;
  {
    const std::scoped_lock lock(mutex_);
    error = std::exchange(error_, nullptr);
  }
  if (error != nullptr) warn("ended with an error that nobody has fetched", error);
}

// Outside of the mutex: the program's log sink may use the stream.
void StreamErrors::warn(const char* what, const std::exception_ptr& error) const noexcept {
  try {
    log(LogSeverity::WARNING,
        "stream \"" + stream_name_ + "\": " + what + ": " + exception_text(error));
  } catch (...) {
    // No memory for the message: there is nothing left to say it with.
  }
}

}  // namespace crossdevice::detail
