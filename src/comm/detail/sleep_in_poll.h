// SPDX-License-Identifier: Apache-2.0
/// A sleep that ends when a descriptor is ready.
#pragma once

#include <chrono>
#include <span>

#include <poll.h>

namespace crossdevice::detail {

/// ppoll(2) with every signal as it is; `time`: not negative. How many are ready; negative: a signal came.
[[nodiscard]] inline int sleep_in_poll(std::span<pollfd> polled, std::chrono::nanoseconds time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  const timespec timeout{.tv_sec = seconds.count(), .tv_nsec = (time - seconds).count()};
  return ::ppoll(polled.data(), polled.size(), &timeout, nullptr);
}

}  // namespace crossdevice::detail
