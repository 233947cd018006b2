// SPDX-License-Identifier: Apache-2.0
/// What ends a wait of the host for a GPU besides what it waits for.
#pragma once

#include "crossdevice/core/deadline.h"

namespace crossdevice::detail {

/// Asked while a thread waits.
///
/// Threads  any, also several at a time.
class WaitInterrupter {
 public:
  WaitInterrupter() = default;
  WaitInterrupter(const WaitInterrupter&) = delete;
  WaitInterrupter& operator=(const WaitInterrupter&) = delete;
  virtual ~WaitInterrupter() = default;
  /// Throws why the wait must end, or returns. Quick: it is called after every pause.
  virtual void throw_if_interrupted() const = 0;
  /// What ends a wait when nobody else has a part in what is waited for any more.
  [[nodiscard]] virtual const WaitInterrupter& behind_others() const { return *this; }
};

struct WaitLimit {
  Deadline deadline = Deadline::never();
  const WaitInterrupter* interrupter = nullptr;  ///< null: only the deadline ends it

  [[nodiscard]] WaitLimit behind_others() const {
    return {.deadline = deadline,
            .interrupter = interrupter == nullptr ? nullptr : &interrupter->behind_others()};
  }
};

}  // namespace crossdevice::detail
