// SPDX-License-Identifier: Apache-2.0
/// A real-time clock of this process's own, which jumps when it is told to. The machine's stays as it is.
///
/// Whoever asks for the time gets it from here: a program that this is linked into has clock_gettime, gettimeofday and time before the C library does. What the
/// kernel waits for by the real-time clock does not jump with it.
#pragma once

#include <cstdint>

namespace crossdevice::chaos {

/// From now on the real-time clock shows so much more, or less. Jumps add up.
///
/// Threads  any; signal handlers too.
void jump_real_time_clock(std::int64_t seconds);

}  // namespace crossdevice::chaos
