// SPDX-License-Identifier: Apache-2.0
/// The vectors of results that hooks of batches return: the in-place forms have no use for them and pass them on to the next batch.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "crossdevice/device/scratch_lease.h"
#include "crossdevice/ops/values.h"

namespace crossdevice::detail {

/// `count` empty results, in memory that drop_results() has left where there is some.
[[nodiscard]] inline std::vector<Mirrored> make_results(std::size_t count) {
  const ScratchLease<std::vector<Mirrored>> spare;
  std::vector<Mirrored> results = std::move(*spare);
  results.resize(count);
  return results;
}

/// Lets go of the results and keeps their memory for make_results().
inline void drop_results(std::vector<Mirrored> results) {
  const ScratchLease<std::vector<Mirrored>> spare;
  *spare = std::move(results);
}

}  // namespace crossdevice::detail
