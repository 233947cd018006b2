// SPDX-License-Identifier: Apache-2.0
/// An operation that copies between hosts and GPUs, and so waits for streams.
#pragma once

#include <utility>

#include "crossdevice/core/error.h"
#include "crossdevice/device/wait_limit.h"

#include "ops/detail/active_operation.h"

namespace crossdevice::detail {

/// Such a wait ends by the operation's deadline, when it is to stop, and when the job ends among whose workers it is.
///
/// Threads  one, that of the operation.
class StreamWait final : public WaitInterrupter {
 public:
  /// BEHIND_OTHERS: for what comes when no other worker has a part in the operation any more.
  enum class When : bool { WITH_OTHERS, BEHIND_OTHERS };
  explicit StreamWait(const ActiveOperation& active, When when = When::WITH_OTHERS)
      : active_(active), when_(when) {}

  /// What `work(limit)` returns, whose copies have that limit.
  ///
  /// Errors   those of `work`; a deadline that passed in a copy names the operation too.
  template <class Work>
  auto run(Work work) const {  // NOLINT(modernize-use-nodiscard): most work returns nothing
    try {
      return work(WaitLimit{.deadline = active_.deadline(), .interrupter = this});
    } catch (const DeadlineExceededError& error) {
      throw_named(error);
    }
  }
  /// Errors   CancelledError; UnavailableError, AbortedError: as JobNews.
  void throw_if_interrupted() const override;

 private:
  [[noreturn]] void throw_named(const DeadlineExceededError& error) const;

  const ActiveOperation& active_;
  When when_;
};

}  // namespace crossdevice::detail
