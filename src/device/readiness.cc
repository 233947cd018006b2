// SPDX-License-Identifier: Apache-2.0
/// Waits for operations in flight.
#include "crossdevice/device/readiness.h"

#include "crossdevice/core/error.h"
#include "crossdevice/core/trace.h"
#include "crossdevice/device/progress.h"
#include "crossdevice/device/shutdown.h"

namespace crossdevice::detail {

void Readiness::wait_slow() const {
  require_not_forked();  // nobody ends the operation in a child
  if (carries_out_operations() || progress_stream().is_current()) {
    throw FailedPreconditionError(
        "a tensor that an operation in flight writes was asked for by the thread that carries such "
        "operations out (inside a hook): it would wait for itself");
  }
  const TraceSpan span("wait", "wait");
  // Only the step to zero notifies; a change between other counts needs no second look.
  for (;;) {
    const std::uint32_t count = in_flight_.load(std::memory_order_acquire);
    if (count == 0) return;
    in_flight_.wait(count, std::memory_order_acquire);
  }
}

}  // namespace crossdevice::detail
