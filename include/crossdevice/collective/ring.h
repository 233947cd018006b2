// SPDX-License-Identifier: Apache-2.0
/// The ring all-reduce ("xring") and its halves: every participant talks to its two neighbours alone, in one ring per sub-chunk.
///
/// TF counterpart: build_ring_all_reduce and _ring_permutations (all_reduce.py).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "crossdevice/collective/schedule.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// One ring per sub-chunk s: the workers one after the other, each one's members rotated left by s * max(1, members / num_subchunks).
/// So different sub-chunks use different links within a worker. orders[s][k] is the participant at position k of ring s.
///
/// Shapes   workers[w] lists participants; together each of [0, n) once. Workers may have different numbers of members.
/// Errors   ValueError: num_subchunks is 0; not each participant once.
/// TF       more sub-chunks than members are allowed: rotations come again.
[[nodiscard]] CROSSDEVICE_EXPORT std::vector<std::vector<std::size_t>> ring_orders(
    std::span<const std::vector<std::size_t>> workers, std::size_t num_subchunks);

/// The schedule over S = orders.size() rings of n participants each:
///
///   1. the elements are cut into n * S chunks (padded_split); chunk k * S + s is segment k of ring s
///   2. n - 1 times: everybody receives a segment from its predecessor and adds its own part: pred op own. The participant at position k
///      then has all of segment k, summed in the order of positions k+1, k+2, ..., k
///   3. n - 1 times: everybody copies a finished segment from its predecessor
///
/// Fewer elements than chunks leave some chunks empty; they are not sent.
///
/// Cost     2(n - 1) rounds. Each rank sends and receives 2(n - 1) messages per ring, 2(n - 1)/n * the bytes of the whole (exactly where
///          n * S divides the number of elements): the least that any all-reduce can do.
/// Errors   ValueError: no orders, or one that is not a permutation of as many participants as the first.
/// TF       the same chunks, neighbours and order of summation; TF pads the chunks with zeros.
[[nodiscard]] CROSSDEVICE_EXPORT Schedule
ring_schedule(std::size_t num_elements, std::span<const std::vector<std::size_t>> orders);

/// The two halves of a ring all-reduce, each alone. Participant k of as many as there are parts has parts[k]: the sum of it in the end of the
/// first, its own value of it in the beginning of the second, after which everybody has all parts.
///
/// Shapes   parts lie one after the other from element 0 on; they may be empty, and of different lengths.
/// Cost     n - 1 rounds; every participant sends (n - 1)/n of all elements if the parts are equal.
/// Errors   ValueError: no parts, or parts that do not lie one after the other.
[[nodiscard]] CROSSDEVICE_EXPORT Schedule
ring_reduce_scatter_schedule(std::span<const Interval> parts);
[[nodiscard]] CROSSDEVICE_EXPORT Schedule ring_all_gather_schedule(std::span<const Interval> parts);

}  // namespace crossdevice
