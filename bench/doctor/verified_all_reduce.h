// SPDX-License-Identifier: Apache-2.0
/// All-reduces whose every element is looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "crossdevice/device/device.h"
#include "crossdevice/ops/cross_device_ops.h"

#include "doctor/finding.h"

namespace crossdevice::doctor {

/// Which of all replicas this process has: devices.size() of them, the first being number `first` of `total`.
struct ReplicaRange {
  int first = 0;
  int total = 0;
};

struct AllReduceOutcome {
  std::string wrong{};         ///< the first wrong element; empty: all are right
  std::size_t size_bytes = 0;  ///< of the largest, per device
  double seconds = 0;  ///< its best time of several, which shows the order of magnitude and no more
};

enum class ValueMemory : std::uint8_t { POOL, OWN };

/// Sums and means of 1, 1000 and 2^20 floats, in place, on tensors from the pool, or, of host devices, on memory that the library has not given.
///
/// Ranks    collective where `ops` is.
/// Errors   what `ops` throws.
[[nodiscard]] AllReduceOutcome verify_all_reduce(CrossDeviceOps& ops, const Devices& devices,
                                                 ReplicaRange replicas,
                                                 ValueMemory memory = ValueMemory::POOL);

/// What to do then.
inline constexpr const char* kValuesAreWrong =
    "values are wrong on this machine: do not train on it; please report this line with the "
    "output of crossdevice-doctor --json";

/// The line about it: `where` is "4 host devices".
[[nodiscard]] Finding all_reduce_finding(std::string name, const std::string& where,
                                         const AllReduceOutcome& outcome);

}  // namespace crossdevice::doctor
