// SPDX-License-Identifier: Apache-2.0
/// Which GPU a logical GPU lies on.
#pragma once

#include "crossdevice/device/device.h"

namespace crossdevice::detail {

class GpuDevice;

/// CUDA's count; 0 where there is no CUDA.
[[nodiscard]] int num_physical_gpus();

/// CUDA's number of the GPU that the device GPU:`index` lies on. From the first call on the split is fixed.
///
/// Cost     one load.
[[nodiscard]] int physical_gpu_of(int index);

/// The reverse: the index of the first device that lies on CUDA's device `ordinal`, present or not.
[[nodiscard]] long long first_device_of_gpu(int ordinal);

/// What remember_gpu_of() said of `device`, for good; null: nothing yet. Each tensor of each call asks.
[[nodiscard]] GpuDevice* remembered_gpu_of(const Device& device) noexcept;

/// For a device that is present and stays so.
void remember_gpu_of(const Device& device, GpuDevice& gpu) noexcept;

}  // namespace crossdevice::detail
