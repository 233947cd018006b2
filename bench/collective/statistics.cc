// SPDX-License-Identifier: Apache-2.0
/// Quantiles by sorting a copy.
#include "collective/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace crossdevice::bench {

double quantile(std::span<const double> samples, double fraction) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const double position = fraction * static_cast<double>(sorted.size() - 1);
  const double below = std::floor(position);
  const std::size_t index = static_cast<std::size_t>(below);
  if (index + 1 >= sorted.size()) return sorted.back();
  return sorted[index] + (position - below) * (sorted[index + 1] - sorted[index]);
}

TimeStatistics summarise(std::span<const double> samples_us) {
  return {.median_us = quantile(samples_us, 0.5),
          .p10_us = quantile(samples_us, 0.1),
          .p99_us = quantile(samples_us, 0.99)};
}

}  // namespace crossdevice::bench
