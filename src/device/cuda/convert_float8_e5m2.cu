// SPDX-License-Identifier: Apache-2.0
// Conversions and divisions of ranges of float8_e5m2.
#include "device/cuda/copy_launch.cuh"
#include "device/cuda/launchers.h"

namespace crossdevice::cuda {

int launch_conversions_from_float8_e5m2(const detail::CopyLaunch& launch) {
  const CopyLauncher launcher{launch.stream};
  return run_conversions_from<Float8E5M2>(launch, launcher);
}

}  // namespace crossdevice::cuda
