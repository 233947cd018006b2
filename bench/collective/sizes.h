// SPDX-License-Identifier: Apache-2.0
/// The sizes of a run: from --minbytes to --maxbytes by a factor or a step.
#pragma once

#include <cstddef>
#include <vector>

namespace crossdevice::bench {

struct SizeRange {
  std::size_t min_bytes = 8;
  std::size_t max_bytes = std::size_t{64} << 20U;
  std::size_t step_bytes = 0;  ///< > 0: each size is this much larger than the one before
  double step_factor = 2;      ///< else: this many times as large
};

/// Ascending, with max_bytes as the last one only if a step hits it (as in nccl-tests).
///
/// Errors   ArgumentError: min_bytes above max_bytes, a factor that is not above 1.
[[nodiscard]] std::vector<std::size_t> sizes_in(const SizeRange& range);

}  // namespace crossdevice::bench
