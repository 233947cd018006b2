// SPDX-License-Identifier: Apache-2.0
// Reductions of bfloat16.
#include "device/cuda/launchers.h"
#include "device/cuda/reduce_launch.cuh"

namespace crossdevice::cuda {

int launch_bfloat16(ReducePlan& plan, detail::CudaStream stream) {
  const ReduceLauncher launcher{stream};
  return run_float_rule<BFloat16>(plan, launcher);
}

}  // namespace crossdevice::cuda
