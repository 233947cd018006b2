// SPDX-License-Identifier: Apache-2.0
// Conversions and divisions of ranges of float32.
#include "device/cuda/copy_launch.cuh"
#include "device/cuda/launchers.h"

namespace crossdevice::cuda {

int launch_conversions_from_float32(const detail::CopyLaunch& launch) {
  const CopyLauncher launcher{launch.stream};
  return run_conversions_from<Float32>(launch, launcher);
}

}  // namespace crossdevice::cuda
