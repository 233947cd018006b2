// SPDX-License-Identifier: Apache-2.0
/// The formulas behind the table's columns. `size_bytes` is the size column: one device's input, for gather the whole result.
///
/// algbw and busbw are nccl-tests' (1 GB = 1e9 bytes): busbw scales algbw so that it can be held against the speed of one link, whatever
/// the number of devices. Traffic counts what a host's memory must move at least: each input byte read once, each output byte written once.
#pragma once

#include <cstddef>

#include "collective/collective.h"

namespace crossdevice::bench {

[[nodiscard]] constexpr double gigabytes_per_second(double size_bytes, double time_us) {
  return time_us > 0 ? size_bytes / (time_us * 1e3) : 0.0;
}

[[nodiscard]] constexpr double algorithm_bandwidth_gbs(std::size_t size_bytes, double time_us) {
  return gigabytes_per_second(static_cast<double>(size_bytes), time_us);
}

/// busbw / algbw for n devices.
[[nodiscard]] constexpr double bus_factor(Collective collective, std::size_t num_devices) {
  const double n = static_cast<double>(num_devices);
  switch (collective) {
    case Collective::ALL_REDUCE:
    case Collective::BATCH_REDUCE:
      return 2 * (n - 1) / n;
    case Collective::GATHER:
      return (n - 1) / n;
    case Collective::REDUCE:
    case Collective::BROADCAST:
      return 1;
  }
  return 0;  // unreachable: every enumerator returns above
}

/// Bytes read plus bytes written in one process. `output_bytes` is what one device's result takes: size_bytes, but for a MEAN of integers,
/// whose result has another element size.
[[nodiscard]] constexpr std::size_t memory_traffic_bytes(Collective collective, Placement placement,
                                                         std::size_t num_devices,
                                                         std::size_t size_bytes,
                                                         std::size_t output_bytes) {
  switch (collective) {
    case Collective::ALL_REDUCE:
    case Collective::BATCH_REDUCE:
      return num_devices * (size_bytes + output_bytes);
    case Collective::REDUCE:
      return num_devices * size_bytes + output_bytes;
    case Collective::BROADCAST:  // in place the root has its copy already
      return size_bytes +
             (placement == Placement::IN_PLACE ? num_devices - 1 : num_devices) * output_bytes;
    case Collective::GATHER:
      return size_bytes + output_bytes;
  }
  return 0;  // unreachable
}

}  // namespace crossdevice::bench
