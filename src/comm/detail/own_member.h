// SPDX-License-Identifier: Apache-2.0
/// How this process introduces itself to the others.
#pragma once

#include <cstddef>

#include "comm/detail/control_message.h"
#include "comm/detail/control_options.h"

namespace crossdevice::detail {

/// A member says at most so many addresses of itself: what it says first has to fit into kMaxStrangerFrameBytes.
inline constexpr std::size_t kMaxOwnAddresses = 16;

/// With the first kMaxOwnAddresses of the addresses; if there are more, a warning says so.
[[nodiscard]] MemberInfo own_member(const ControlPlaneOptions& options);

}  // namespace crossdevice::detail
