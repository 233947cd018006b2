// SPDX-License-Identifier: Apache-2.0
/// The GPUs themselves, however many devices each is split into.
#pragma once

#include <vector>

#include "crossdevice/device/device.h"

namespace crossdevice::doctor {

/// The first device of each: what NCCL can take together.
[[nodiscard]] std::vector<Device> one_device_of_each_gpu();

}  // namespace crossdevice::doctor
