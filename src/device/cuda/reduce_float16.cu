// SPDX-License-Identifier: Apache-2.0
// Reductions of float16.
#include "device/cuda/launchers.h"
#include "device/cuda/reduce_launch.cuh"

namespace crossdevice::cuda {

int launch_float16(ReducePlan& plan, detail::CudaStream stream) {
  const ReduceLauncher launcher{stream};
  return run_float_rule<Float16>(plan, launcher);
}

}  // namespace crossdevice::cuda
