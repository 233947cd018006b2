// SPDX-License-Identifier: Apache-2.0
/// How small calls are timed: by all who measure them, and by the plain sockets that bound them.
#pragma once

#include <cstddef>

namespace crossdevice::bench {

/// How many calls in a row a sample times at most. It is their time divided by their number, and
/// of that the slowest worker's: so the moment in which each worker begins matters little.
inline constexpr std::size_t kMaxCallsPerSample = 64;

/// What lines workers up before a sample. A worker that comes early sleeps in the first of these
/// small reductions and wakes up late; the later ones find everybody awake.
inline constexpr int kReductionsPerLineUp = 3;

}  // namespace crossdevice::bench
