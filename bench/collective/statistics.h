// SPDX-License-Identifier: Apache-2.0
/// Order statistics of measured times.
#pragma once

#include <span>

namespace crossdevice::bench {

/// In microseconds.
struct TimeStatistics {
  double median_us = 0;
  double p10_us = 0;
  double p99_us = 0;
};

/// The value below which `fraction` (0 to 1) of the samples lie, interpolated between neighbours. Sorts nothing the caller sees; at
/// least one sample.
[[nodiscard]] double quantile(std::span<const double> samples, double fraction);

[[nodiscard]] TimeStatistics summarise(std::span<const double> samples_us);

}  // namespace crossdevice::bench
