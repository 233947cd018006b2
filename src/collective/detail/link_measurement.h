// SPDX-License-Identifier: Apache-2.0
/// What the links between the members of a cluster can do, found out in bounded time.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>

#include "crossdevice/collective/all_reduce_choice.h"
#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/transport.h"
#include "crossdevice/core/deadline.h"

#include "collective/detail/scratch_memory.h"

namespace crossdevice::detail {

struct LinkMeasurement {
  bool is_mesh = false;  ///< everybody is connected to everybody, else as a barrier needs it
  Deadline deadline = Deadline::never();
  std::function<Deadline::Clock::time_point()> now = &Deadline::Clock::now;
};

/// Of what is measured, each.
inline constexpr int kLinkProbes = 4;  // the first of which does not count where there is another
/// A first look at all links: few enough bytes to leave at once.
inline constexpr std::size_t kLookBytes = std::size_t{8} << 10;
/// Some 20 ms a time at 100 Mbit/s; and where links are faster, so that bursts do not flatter them.
inline constexpr std::size_t kProbeBytes = std::size_t{256} << 10;
inline constexpr std::size_t kLongProbeBytes = std::size_t{2} << 20;
/// Rounds of messages that carry next to nothing come one after the other, as many as take 2 ms, so that none of them wakes up who sleeps.
inline constexpr int kMaxShortRounds = 50;

/// Measures the links between all ranks. The slowest of all counts. Ends with a round of the control plane, before which nobody goes on.
///
/// Ranks    collective. All make the same rounds, whatever their clocks say and whenever a link changes: what is decided is decided by what all have found.
/// Cost     with b = ceil(log2 n), in times that a message takes:
///            b                               everybody is there
///            1 to 4 times (1 + b)            a look: kLookBytes to the next, and a barrier that carries what was found
///          and where by this look at least two probes more fit into a second, which includes the look, what of this fits:
///            b                               all know the latency
///            4 times (50 + 1) b              the latency, where it is below 1 ms; else as the barriers took
///            4 times (50 + b)                what a message more costs, where the latency is below 10 ms; fewer than 50 as above
///            2 to 4 times 2 (1 + b)          kProbeBytes to the next, and to all others; kLongProbeBytes too where that is fast; 2 (1 + b) of it
///                                            without a mesh
///          and in the end 2, to the chief and back. 0.2 s at 100 Mbit/s. A link of 200 ms costs four workers 7 times that; after 1 s nothing begins but
///          the barriers, two at most, by which all learn of it.
/// Errors   as Transport and Cluster.
[[nodiscard]] LinkModel measure_links(Cluster& cluster, Transport& transport,
                                      ScratchMemory& scratch, const LinkMeasurement& how);

/// A mesh that looks a little faster than a ring is a ring's equal: the fill of a shaper's bucket, say, flatters what is measured later. More is believed:
/// where one connection does not fill a link, several carry much more. So is less: many connections may hinder each other.
[[nodiscard]] LinkModel without_noise(LinkModel links);

}  // namespace crossdevice::detail
