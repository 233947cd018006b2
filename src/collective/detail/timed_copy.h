// SPDX-License-Identifier: Apache-2.0
/// Copies of any size that look at the clock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "crossdevice/comm/transport.h"
#include "crossdevice/core/deadline.h"

namespace crossdevice::detail {

/// Errors   as Transport::require_time_left(), before a part is copied; those before it have been.
inline void copy_in_time(Transport& transport, std::byte* to, const std::byte* from,
                         std::size_t size_bytes, const Deadline& deadline) {
  constexpr std::size_t kPartBytes = std::size_t{8} << 20;  // some milliseconds
  for (std::size_t done = 0; done < size_bytes; done += kPartBytes) {
    transport.require_time_left(deadline);
    std::memcpy(to + done, from + done, std::min(kPartBytes, size_bytes - done));
  }
}

}  // namespace crossdevice::detail
