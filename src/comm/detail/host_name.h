// SPDX-License-Identifier: Apache-2.0
/// What this machine is called, and how to tell it from others.
#pragma once

#include <cstddef>
#include <string>

namespace crossdevice::detail {

/// As uname says; for messages.
[[nodiscard]] std::string host_name();

/// Every member says its own to the chief before that knows who it is, which has little patience with strangers.
inline constexpr std::size_t kMaxHostIdBytes = 255;

/// Equal for processes that share memory and loopback: CROSSDEVICE_HOST_ID, or else the kernel's boot id, the name, and the network and process
/// namespaces, which containers on one machine have of their own.
///
/// Errors   ValueError: the variable has more than kMaxHostIdBytes.
[[nodiscard]] std::string host_id();

}  // namespace crossdevice::detail
