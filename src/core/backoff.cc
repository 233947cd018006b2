// SPDX-License-Identifier: Apache-2.0
// Sleeps, a little longer each time.
#include "crossdevice/core/backoff.h"

#include <algorithm>
#include <thread>

namespace crossdevice::detail {

void Backoff::pause(const Deadline& deadline) {
  constexpr std::chrono::nanoseconds kLongest = std::chrono::milliseconds(1);
  const Deadline::Clock::time_point end = Deadline::Clock::now() + next_;
  std::this_thread::sleep_until(std::min(end, deadline.moment()));
  next_ = std::min(next_ + next_ / 4, kLongest);
}

}  // namespace crossdevice::detail
