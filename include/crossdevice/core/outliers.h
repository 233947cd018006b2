// SPDX-License-Identifier: Apache-2.0
/// Of several that should be alike: who is not.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace crossdevice::detail {

/// Which of 0 to `count` - 1 are not as most are, in ascending order: those for which `differ(i, j)` with j one that is like more others than any. Who differs from
/// nobody, as it says too little for that, is no j. Where several such differ from each other, as two always do, nobody can say who is right: all that differ from
/// somebody.
///
/// Cost     count * count calls: for failures.
template <class Differ>
[[nodiscard]] std::vector<std::size_t> outliers(std::size_t count, Differ differ) {
  std::vector<std::size_t> differing;
  std::vector<std::size_t> models;
  std::size_t most_alike = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t alike = 0;
    for (std::size_t j = 0; j < count; ++j) {
      if (!differ(i, j)) ++alike;
    }
    if (alike == count) continue;
    differing.push_back(i);
    if (alike > most_alike) models.clear();
    most_alike = std::max(most_alike, alike);
    if (alike == most_alike) models.push_back(i);
  }
  const auto is_outlier = [&](std::size_t i) { return differ(i, models.front()); };
  if (std::none_of(models.begin(), models.end(), is_outlier)) {
    std::erase_if(differing, [&](std::size_t i) { return !is_outlier(i); });
  }
  return differing;
}

}  // namespace crossdevice::detail
