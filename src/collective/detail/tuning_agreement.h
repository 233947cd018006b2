// SPDX-License-Identifier: Apache-2.0
/// How the members of a cluster come to one tuning: what rank 0 has pinned, and what the links can do.
#pragma once

#include <span>
#include <string>

#include "crossdevice/collective/all_reduce_choice.h"
#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/transport.h"

#include "collective/detail/message_barrier.h"
#include "collective/detail/scratch_memory.h"

namespace crossdevice::detail {

/// What rank 0's CROSSDEVICE_TUNING_FILE says; nothing where there is none.
///
/// Ranks    (of all here but the last) collective.
/// Errors   on all ranks: ValueError: the file cannot be read. ResourceExhaustedError: rank 0 has no memory or no descriptor left. Else as Cluster.
[[nodiscard]] AllReduceTuning receive_tuning(Cluster& cluster, const Deadline& deadline);

struct LinkMeasurement {
  bool is_mesh = false;  ///< everybody is connected to everybody, else as a barrier needs it
  Deadline deadline = Deadline::never();
};

/// Measures the links between all ranks. The slowest of all counts. Ends with a round of the control plane, before which nobody goes on.
///
/// Cost     some rounds of 256 KiB each way, and of 2 MiB where links are fast: 0.2 s at 100 Mbit/s.
[[nodiscard]] LinkModel measure_links(Cluster& cluster, Transport& transport,
                                      MessageBarrier& barrier, ScratchMemory& scratch,
                                      const LinkMeasurement& how);

/// A mesh that looks a little faster than a ring is a ring's equal: the fill of a shaper's bucket, say, flatters what is measured later. More is believed:
/// where one connection does not fill a link, several carry much more. So is less: many connections may hinder each other.
[[nodiscard]] LinkModel without_noise(LinkModel links);

/// "exchange, 210.0 us expected (shuffle 420.0, ring 1260.0)".
[[nodiscard]] std::string explain(std::span<const AllReduceCandidate> candidates);
/// One line for the log.
[[nodiscard]] std::string describe(const AllReduceTuning& tuning, std::size_t num_ranks,
                                   bool is_mesh);

}  // namespace crossdevice::detail
