// SPDX-License-Identifier: Apache-2.0
/// Whether this process is a child of fork() that must not touch what it inherited: the question for destructors.
#pragma once

#include "crossdevice/device/shutdown.h"

namespace crossdevice::detail {

[[nodiscard]] inline bool is_forked_child() noexcept {
  return fork_state.load(std::memory_order_relaxed) == ForkState::CHILD;
}

}  // namespace crossdevice::detail
