// SPDX-License-Identifier: Apache-2.0
/// Schedules with a root: broadcast, reduce, gather; and those in which everybody is the root of a part, in one round.
#pragma once

#include <cstddef>
#include <span>

#include "crossdevice/collective/schedule.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// Elements that everybody copies from the participant before, beginning at `root`. In pieces that is the fastest way for many elements.
///
/// Cost     n - 1 rounds. Every participant receives S bytes and sends S bytes, once.
/// Errors   (of all here) ValueError: no participants, or a root that is none.
[[nodiscard]] CROSSDEVICE_EXPORT Schedule chain_broadcast_schedule(std::size_t num_participants,
                                                                   std::size_t num_elements,
                                                                   std::size_t root);
/// The same backwards: the last participant before the root begins, everybody adds its own: own op what comes.
[[nodiscard]] CROSSDEVICE_EXPORT Schedule chain_reduce_schedule(std::size_t num_participants,
                                                                std::size_t num_elements,
                                                                std::size_t root);

/// A binomial tree: few rounds, for few elements.
///
/// Cost     at most ceil(log2 n) rounds; everybody but the root receives S bytes, the root sends ceil(log2 n) S.
[[nodiscard]] CROSSDEVICE_EXPORT Schedule tree_broadcast_schedule(std::size_t num_participants,
                                                                  std::size_t num_elements,
                                                                  std::size_t root);
/// The same backwards. Elements are combined by the distance from the root: ((0 + 1) + (2 + 3)) + ...
[[nodiscard]] CROSSDEVICE_EXPORT Schedule tree_reduce_schedule(std::size_t num_participants,
                                                               std::size_t num_elements,
                                                               std::size_t root);

/// The root gets everybody's elements at once, and combines them in the order of participants.
///
/// Cost     1 round; the root receives (n - 1) S bytes.
[[nodiscard]] CROSSDEVICE_EXPORT Schedule direct_reduce_schedule(std::size_t num_participants,
                                                                 std::size_t num_elements,
                                                                 std::size_t root);

/// Participant p has parts[p]; the root gets all of them, from each at once.
///
/// Shapes   (of all three) parts are disjoint; they may be empty, and of different lengths.
/// Cost     1 round.
[[nodiscard]] CROSSDEVICE_EXPORT Schedule direct_gather_schedule(std::span<const Interval> parts,
                                                                 std::size_t root);
/// Participant p gets parts[p] of everybody at once, and combines them in the order of participants.
///
/// Cost     1 round, as many bytes as ring_reduce_scatter_schedule.
[[nodiscard]] CROSSDEVICE_EXPORT Schedule
direct_reduce_scatter_schedule(std::span<const Interval> parts);
/// Everybody gets all parts, from each at once: as many bytes as ring_all_gather_schedule in one round, but everybody talks to everybody.
[[nodiscard]] CROSSDEVICE_EXPORT Schedule
direct_all_gather_schedule(std::span<const Interval> parts);

}  // namespace crossdevice
