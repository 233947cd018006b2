// SPDX-License-Identifier: Apache-2.0
/// What rank 0 has pinned for all members of a cluster, and what is said of a tuning.
#pragma once

#include <span>
#include <string>

#include "crossdevice/collective/all_reduce_choice.h"
#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/deadline.h"

namespace crossdevice::detail {

/// What rank 0's CROSSDEVICE_TUNING_FILE says; nothing where there is none. The links are those that were measured when another engine of this cluster was made,
/// if one was, unless the file has some.
///
/// Ranks    collective.
/// Errors   on all ranks: ValueError: the file cannot be read. ResourceExhaustedError: rank 0 has no memory or no descriptor left. Else as Cluster.
[[nodiscard]] AllReduceTuning receive_tuning(Cluster& cluster, const Deadline& deadline);

/// "exchange, 210.0 us expected (shuffle 420.0, ring 1260.0)", of candidates that this tuning has ranked.
[[nodiscard]] std::string explain(std::span<const AllReduceCandidate> candidates,
                                  const AllReduceTuning& tuning);
/// One line for the log.
[[nodiscard]] std::string describe(const AllReduceTuning& tuning, std::size_t num_ranks,
                                   bool is_mesh);

}  // namespace crossdevice::detail
