// SPDX-License-Identifier: Apache-2.0
/// The pauses of a wait for something that can only be asked, never waited for.
#pragma once

#include <chrono>

#include "crossdevice/core/deadline.h"
#include "crossdevice/core/export.h"

namespace crossdevice::detail {

/// Where a condition variable, a futex or a descriptor can be waited for, wait for that. This is for the rest: CUDA's events and streams,
/// NCCL's asynchronous errors.
///
/// Cost     each pause is a quarter longer than the one before, from 20 us to 1 ms, so that a wait of any length ends at most a quarter late.
/// Threads  one.
class CROSSDEVICE_EXPORT Backoff {
 public:
  /// Sleeps, but not past `deadline`.
  void pause(const Deadline& deadline);

 private:
  std::chrono::nanoseconds next_ = std::chrono::microseconds(20);
};

}  // namespace crossdevice::detail
