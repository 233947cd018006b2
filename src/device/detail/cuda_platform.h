// SPDX-License-Identifier: Apache-2.0
/// The tables over the real CUDA. In a build without CUDA this says so.
#pragma once

#include "crossdevice/device/gpu_platform.h"

namespace crossdevice::detail {

[[nodiscard]] GpuPlatform make_cuda_platform();

}  // namespace crossdevice::detail
