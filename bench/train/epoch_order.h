// SPDX-License-Identifier: Apache-2.0
/// In which order an epoch visits the examples, and which of them go to which replica.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace crossdevice::train {

/// A permutation of 0 .. count-1 that depends on `seed` and `epoch` alone, not on the number of replicas.
[[nodiscard]] std::vector<std::size_t> epoch_order(std::size_t count, std::uint64_t seed,
                                                   std::size_t epoch);

/// Replica `replica`'s part of a global batch: consecutive, sizes differ by one at most, together the whole batch in order.
template <class T>
[[nodiscard]] std::span<const T> part_of_replica(std::span<const T> batch, std::size_t replica,
                                                 std::size_t num_replicas) {
  const std::size_t begin = batch.size() * replica / num_replicas;
  const std::size_t end = batch.size() * (replica + 1) / num_replicas;
  return batch.subspan(begin, end - begin);
}

}  // namespace crossdevice::train
