// SPDX-License-Identifier: Apache-2.0
// Conversions and divisions of ranges of float64.
#include "device/cuda/copy_launch.cuh"
#include "device/cuda/launchers.h"

namespace crossdevice::cuda {

int launch_conversions_from_float64(const detail::CopyLaunch& launch) {
  const CopyLauncher launcher{launch.stream};
  return run_conversions_from<Float64>(launch, launcher);
}

}  // namespace crossdevice::cuda
