// SPDX-License-Identifier: Apache-2.0
// Copies of ranges bit by bit.
#include "device/cuda/copy_launch.cuh"
#include "device/cuda/launchers.h"

namespace crossdevice::cuda {

int launch_byte_copies(const detail::CopyLaunch& launch) {
  const CopyLauncher launcher{launch.stream};
  return run_byte_copies(launch, launcher);
}

}  // namespace crossdevice::cuda
