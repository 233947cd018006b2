// SPDX-License-Identifier: Apache-2.0
/// Which ops fit these devices. TF counterpart: select_cross_device_ops.
#pragma once

#include <memory>

#include "crossdevice/core/export.h"
#include "crossdevice/device/device.h"
#include "crossdevice/ops/cross_device_ops.h"

namespace crossdevice {

/// NcclAllReduce(1) when all devices are GPUs and NCCL works, else ReductionToOneDevice. The choice is logged once with its reason.
///
/// Errors   ValueError: no devices, or one that is not present.
[[nodiscard]] CROSSDEVICE_EXPORT std::shared_ptr<CrossDeviceOps> select_cross_device_ops(
    const Devices& devices);

}  // namespace crossdevice
