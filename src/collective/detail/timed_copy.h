// SPDX-License-Identifier: Apache-2.0
/// Copies of any size that look at the clock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "crossdevice/comm/transport.h"
#include "crossdevice/core/deadline.h"

namespace crossdevice::detail {

/// Before each part `require_time_left()` throws if there is none; the parts before have been copied. One may be copied upon itself.
template <class RequireTimeLeft>
void copy_in_time(std::byte* to, const std::byte* from, std::size_t size_bytes,
                  RequireTimeLeft require_time_left) {
  constexpr std::size_t kPartBytes = std::size_t{8} << 20;  // some milliseconds
  for (std::size_t done = 0; done < size_bytes; done += kPartBytes) {
    require_time_left();
    std::memmove(to + done, from + done, std::min(kPartBytes, size_bytes - done));
  }
}

/// Errors   as Transport::require_time_left().
inline void copy_in_time(Transport& transport, std::byte* to, const std::byte* from,
                         std::size_t size_bytes, const Deadline& deadline) {
  copy_in_time(to, from, size_bytes, [&] { transport.require_time_left(deadline); });
}

}  // namespace crossdevice::detail
