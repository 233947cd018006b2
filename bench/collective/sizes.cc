// SPDX-License-Identifier: Apache-2.0
/// Lists the sizes of a run.
#include "collective/sizes.h"

#include <algorithm>

#include <fmt/core.h>

#include "support/byte_size.h"
#include "support/program.h"

namespace crossdevice::bench {

std::vector<std::size_t> sizes_in(const SizeRange& range) {
  if (range.min_bytes > range.max_bytes) {
    throw programs::ArgumentError(fmt::format("--minbytes {} is above --maxbytes {}",
                                              programs::format_byte_size(range.min_bytes),
                                              programs::format_byte_size(range.max_bytes)));
  }
  if (range.step_bytes == 0 && !(range.step_factor > 1)) {
    throw programs::ArgumentError(
        fmt::format("--stepfactor {} must be above 1", range.step_factor));
  }
  std::vector<std::size_t> sizes;
  std::size_t size = range.min_bytes;
  for (;;) {
    sizes.push_back(size);
    std::size_t step = range.step_bytes;
    if (step == 0) {
      const double grown = static_cast<double>(size) * (range.step_factor - 1);
      if (grown > static_cast<double>(range.max_bytes)) return sizes;
      step = std::max<std::size_t>(1, static_cast<std::size_t>(grown));
    }
    if (step > range.max_bytes - size) return sizes;
    size += step;
  }
}

}  // namespace crossdevice::bench
