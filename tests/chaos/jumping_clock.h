// SPDX-License-Identifier: Apache-2.0
/// A real-time clock of this process's own, which jumps when it is told to. The machine's stays as it is.
///
/// Whoever calls clock_gettime, gettimeofday or time gets it from here, in shared libraries too: a program that this is linked into has them before the C library
/// does. What the C library or the kernel itself looks at does not jump.
#pragma once

#include <cstdint>

namespace crossdevice::chaos {

/// From now on the real-time clock shows so much more, or less. Jumps add up.
///
/// Threads  any; signal handlers too.
void jump_real_time_clock(std::int64_t seconds);

/// How far the real-time clock that shared libraries have shown since is ahead of the machine's; in seconds, to one.
[[nodiscard]] std::int64_t real_time_lead_seconds();

}  // namespace crossdevice::chaos
