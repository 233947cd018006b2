// SPDX-License-Identifier: Apache-2.0
/// A monotonic clock of a process's own (a time namespace). The real-time clock is one for the whole machine, and stays alone.
#pragma once

#include <cstdint>
#include <string>

namespace crossdevice::chaos {

/// From now on, and for what this process becomes, the monotonic clock shows so much more than the machine's.
///
/// Errors   std::runtime_error: not root; the kernel has no time namespaces.
/// Threads  the process must have no other.
void shift_monotonic_clock(std::uint64_t seconds);

/// How many seconds the monotonic clock of this process is ahead of one that no shift touches; that one has also counted while the machine was suspended, so
/// it may be more.
[[nodiscard]] double monotonic_lead_seconds();

/// Why that cannot be done here; empty: it can.
[[nodiscard]] std::string shifted_clock_obstacle();

}  // namespace crossdevice::chaos
