// SPDX-License-Identifier: Apache-2.0
/// The short first part of a wait: most waits end before a sleep would have begun.
#pragma once

#include <chrono>
#include <thread>

#include "crossdevice/core/cpu_relax.h"

namespace crossdevice::detail {

/// Polls `ready` for about 50 us, which is what putting a thread to sleep and waking it costs; whether it came true.
/// Pauses for half a microsecond, then yields, because the awaited thread may want this very core: where there are more threads
/// than cores, every pause delays it (100 pauses made a hand-over on one core last 7.8 us instead of 4). Ends by its clock.
template <class Ready>
[[nodiscard]] bool spin_until(const Ready& ready) {
  for (int i = 0; i < 20; ++i) {
    if (ready()) return true;
    cpu_relax();
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
  do {
    if (ready()) return true;
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

}  // namespace crossdevice::detail
