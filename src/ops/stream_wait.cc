// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/stream_wait.h"

#include <fmt/format.h>

namespace crossdevice::detail {

void StreamWait::throw_if_interrupted() const {
  if (active_.stop_requested()) active_.throw_stopped();
  const WaitInterrupter* const job = active_.job();
  if (job == nullptr) return;
  (when_ == When::BEHIND_OTHERS ? job->behind_others() : *job).throw_if_interrupted();
}

void StreamWait::throw_named(const DeadlineExceededError& error) const {
  if (!error.operation().kind.empty()) throw error;
  throw_anew(error,
             fmt::format("{} timed out after {} s: {}", to_string(active_.record()),
                         active_.timeout_seconds().value_or(0), error.what()),
             active_.record(), error.inputs_intact());
}

}  // namespace crossdevice::detail
