// SPDX-License-Identifier: Apache-2.0
/// Cross-device ops by the names that the programs' command lines use.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "crossdevice/device/device.h"
#include "crossdevice/ops/all_reduce_spec.h"
#include "crossdevice/ops/communication_options.h"
#include "crossdevice/ops/cross_device_ops.h"

namespace crossdevice::programs {

/// "auto, reduction_to_one_device, hierarchical_copy, nccl, multi_worker".
[[nodiscard]] std::string known_ops_names();

/// Errors   ArgumentError: none of the known names.
void require_known_ops(std::string_view name);

struct NamedOps {
  std::shared_ptr<CrossDeviceOps> ops;
  std::string name;  ///< of what it is: never "auto"
};

/// What ops are made with, as far as their kind takes it.
struct OpsSettings {
  int num_packs = 1;
  AllReduceSpec all_reduce_spec = {"pscpu/pscpu", 2, -1};
};

/// The workers of devices such as "/job:worker/task:0/CPU:1", each once, in the order in which they appear.
[[nodiscard]] Devices workers_of(const Devices& devices);

/// "auto" is what select_cross_device_ops() picks. The workers of "multi_worker" are the devices'.
///
/// Errors   ArgumentError: none of the known names. ValueError: as the ops' constructors.
[[nodiscard]] NamedOps make_ops(std::string_view name, const Devices& devices,
                                const OpsSettings& settings);

/// What combines the values when the ops of this name run on these devices.
///   direct         one pass over all replicas, in replica order
///   direct_halves  one pass, each half of the replicas combined by itself
///   nccl           NCCL
///   pscpu/pscpu#2  what all_reduce_spec says, for "multi_worker"
[[nodiscard]] std::string algorithm_name(std::string_view ops_name, const Devices& devices,
                                         const CommunicationOptions& options,
                                         const AllReduceSpec& all_reduce_spec);

}  // namespace crossdevice::programs
