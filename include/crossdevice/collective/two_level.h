// SPDX-License-Identifier: Apache-2.0
/// All-reduce in two levels: first within each group of participants, then across the groups ("nccl/xring", "pscpu/pscpu", ...).
///
/// TF counterparts: _build_nccl_hybrid, _build_shuffle_hybrid (all_reduce.py).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "crossdevice/collective/schedule.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// The schedule over the participants of `groups`; `upper` is an all-reduce over as many participants as there are groups:
///
///   1. the first member of each group reduces the group, in the order of its members, in one step
///   2. `upper` among the first members: its participant w is the first member of groups[w]
///   3. every other member copies from the first one of its group
///
/// Cost     the upper level's rounds, and at most 2 more if a group has several members. Beside the upper level's bytes, which are all that leaves a
///          group, the first member of a group of m receives and sends (m - 1) S bytes, the others S each.
/// Errors   ValueError: no groups, an empty one, not each participant once, an upper level for another number of participants.
[[nodiscard]] CROSSDEVICE_EXPORT Schedule
two_level_schedule(std::span<const std::vector<std::size_t>> groups, const Schedule& upper);

}  // namespace crossdevice
