// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/spin_patience.h"

#include <thread>
#include <utility>

#include <sys/resource.h>

#include "crossdevice/core/cpu_relax.h"

namespace crossdevice::detail {
namespace {

/// How long to look without giving up the core, where it has been free.
constexpr std::chrono::microseconds kSpinTime{20};
/// How long to look before sleeping: a sleep and the waking up cost about as much.
constexpr std::chrono::microseconds kTryTime{60};
/// A yield that takes longer has let somebody else run.
constexpr std::chrono::microseconds kQuickYield{3};
/// So many in one wait: what is waited for does not come by itself.
constexpr int kEnoughSlowYields = 3;
/// So many in a row: the core may be free again.
constexpr int kEnoughQuickYields = 8;

/// How often the calling thread has given its core to another one, or lost it.
std::int64_t num_switches() {
  rusage usage{};
  if (::getrusage(RUSAGE_THREAD, &usage) != 0) return 0;
  return usage.ru_nvcsw + usage.ru_nivcsw;
}

}  // namespace

bool SpinPatience::is_exhausted() {
  const Clock::time_point now = Clock::now();
  if (!std::exchange(is_waiting_, true)) idle_since_ = now;
  if (is_crowded_out_ || now - idle_since_ >= kTryTime) {
    num_quick_yields_ = 0;
    return true;
  }
  if (has_core_ && now - idle_since_ < kSpinTime) {
    cpu_relax();
    return false;
  }
  std::this_thread::yield();
  if (Clock::now() - now < kQuickYield) {
    if (may_spin_) note_quick_yield();
  } else {
    // Somebody else had the core, perhaps the one that is waited for: who spins holds it up.
    num_quick_yields_ = 0;
    has_core_ = false;
    is_crowded_out_ = ++num_slow_yields_ >= kEnoughSlowYields;
  }
  return false;
}

/// Others that only look and yield as well take less than kQuickYield on a fast machine, so time alone does not tell; the kernel's count does.
void SpinPatience::note_quick_yield() {
  if (num_quick_yields_++ == 0) {
    num_switches_ = num_switches();
  } else if (num_quick_yields_ > kEnoughQuickYields) {
    has_core_ = num_switches() == num_switches_;
    num_quick_yields_ = 0;
  }
}

}  // namespace crossdevice::detail
