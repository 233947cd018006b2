// SPDX-License-Identifier: Apache-2.0
/// Sets of cores in messages.
#pragma once

#include <cstdint>
#include <set>

#include "comm/detail/wire.h"

namespace crossdevice::detail {

inline void put_cores(WireWriter& message, const std::set<int>& cores) {
  message.number(static_cast<std::uint32_t>(cores.size()));
  for (const int core : cores) message.number(std::int32_t{core});
}

/// Errors   WireError: it ends too early.
[[nodiscard]] inline std::set<int> get_cores(WireReader& message) {
  std::set<int> cores;
  for (auto num = message.number<std::uint32_t>(); num > 0; --num) {
    cores.insert(message.number<std::int32_t>());
  }
  return cores;
}

}  // namespace crossdevice::detail
