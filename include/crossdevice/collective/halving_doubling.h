// SPDX-License-Identifier: Apache-2.0
/// Recursive halving and doubling ("rechd"): few rounds, for any number of participants.
///
/// TF counterpart: build_recursive_hd_all_reduce (all_reduce.py). Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of
/// Collective Communication Operations in MPICH", 2005.
#pragma once

#include <cstddef>

#include "crossdevice/collective/schedule.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// The largest power of two that is not more than n > 0.
[[nodiscard]] constexpr std::size_t halving_doubling_core(std::size_t num_participants) {
  std::size_t core = 1;
  while (core <= num_participants / 2) core *= 2;
  return core;
}

/// The schedule over n participants, p = halving_doubling_core(n) of which take part in the exchange:
///
///   1. participant i < n - p adds what participant p + i has: i op (p + i)
///   2. log2 p times, with distance 1, 2, 4, ...: participants d and d + distance each halve the elements they are at (the first half is the
///      larger one); d reduces the first half, the other one the second: d op (d + distance)
///   3. the same pairs backwards: each copies the other's part
///   4. participant p + i copies everything from i
///
/// `num_shards` of these, each on its own part (padded_split) of the elements and a round behind the one before.
///
/// Every element is combined in the same order: ((0 + 1) + (2 + 3)) + ... with the extra participants' added to the first ones beforehand.
///
/// Cost     2 log2 p rounds, and 2 more off powers of two. With S bytes that p * num_shards divides, each of the p ranks sends and receives
///          2 log2 p messages per shard, 2(p - 1)/p S bytes; off powers of two, ranks i < n - p and p + i one message and S bytes more
///          (for p + i that is all).
/// Errors   ValueError: no participants, no shards.
/// TF       any number of participants and elements (TF: powers of two that divide).
[[nodiscard]] CROSSDEVICE_EXPORT Schedule halving_doubling_schedule(std::size_t num_participants,
                                                                    std::size_t num_elements,
                                                                    std::size_t num_shards = 1);

}  // namespace crossdevice
