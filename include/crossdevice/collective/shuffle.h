// SPDX-License-Identifier: Apache-2.0
/// The shuffle all-reduce ("pscpu", "psgpu"): every element has an owner, as on parameter servers.
///
/// TF counterpart: build_shuffle_all_reduce (all_reduce.py).
#pragma once

#include <cstddef>
#include <span>

#include "crossdevice/collective/schedule.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// The schedule over n participants and G = owners.size() shards (ragged_split):
///
///   1. owners[g] reduces shard g of all participants, in their order, in one step
///   2. everybody else copies shard g from owners[g]
///
/// A participant may own several shards, or none. `num_blocks` of these, each on its own part (ragged_split) of the elements, where 2. of a block follows 1. of
/// the next: who has much of a block to send to one participant and nothing to another sends the latter its results meanwhile.
///
/// Cost     2 rounds. With S bytes that G divides, an owner of one shard sends and receives (n - 1) S/G bytes for it in n - 1 messages;
///          everybody sends and receives S/G in one message for each shard that it does not own. With every participant an owner of
///          one shard: 2(n - 1)/n S bytes, as much as a ring, but in 2(n - 1) messages of one round each. Blocks: as many times the messages.
/// Errors   ValueError: no participants, no owners, an owner that is no participant, no blocks.
/// TF       the gather devices are participants, and there may be more shards than owners.
[[nodiscard]] CROSSDEVICE_EXPORT Schedule shuffle_schedule(std::size_t num_participants,
                                                           std::size_t num_elements,
                                                           std::span<const std::size_t> owners,
                                                           std::size_t num_blocks = 1);

}  // namespace crossdevice
