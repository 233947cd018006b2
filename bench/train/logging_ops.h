// SPDX-License-Identifier: Apache-2.0
/// Cross-device ops that log when they reduce.
#pragma once

#include <memory>
#include <string_view>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/device/device.h"
#include "crossdevice/ops/cross_device_ops.h"

#include "train/communication_log.h"

namespace crossdevice::train {

/// The ops of a name (support/named_ops.h) that also log what they do. They override the hooks, so nothing else is different.
///
/// Errors   ArgumentError: none of the known names.
[[nodiscard]] std::shared_ptr<CrossDeviceOps> make_logging_ops(std::string_view name,
                                                               const Devices& devices,
                                                               CommunicationLog& log);

/// The same of CollectiveAllReduce over `devices` of every worker. Collective.
[[nodiscard]] std::shared_ptr<CrossDeviceOps> make_logging_collective_ops(
    const Devices& devices, std::shared_ptr<Cluster> cluster, CommunicationLog& log);

}  // namespace crossdevice::train
