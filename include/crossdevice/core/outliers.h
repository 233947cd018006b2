// SPDX-License-Identifier: Apache-2.0
/// Of several that should be alike: who is not.
#pragma once

#include <cstddef>
#include <vector>

namespace crossdevice::detail {

/// Which of 0 to `count` - 1 are not as most are, in ascending order: those for which `differ(i, j)` with j the one that is like more others than any, the lowest of
/// several such. So of two that differ it is the second. Who differs from nobody, as it says too little for that, is no j.
///
/// Cost     count * count calls: for failures.
template <class Differ>
[[nodiscard]] std::vector<std::size_t> outliers(std::size_t count, Differ differ) {
  std::size_t model = 0;
  std::size_t most_alike = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t alike = 0;
    for (std::size_t j = 0; j < count; ++j) {
      if (!differ(i, j)) ++alike;
    }
    if (alike == count || alike <= most_alike) continue;
    most_alike = alike;
    model = i;
  }
  std::vector<std::size_t> found;
  for (std::size_t i = 0; most_alike != 0 && i < count; ++i) {
    if (differ(i, model)) found.push_back(i);
  }
  return found;
}

}  // namespace crossdevice::detail
