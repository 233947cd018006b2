// SPDX-License-Identifier: Apache-2.0
// Reductions of float8_e5m2.
#include "device/cuda/launchers.h"
#include "device/cuda/reduce_launch.cuh"

namespace crossdevice::cuda {

int launch_float8_e5m2(ReducePlan& plan, detail::CudaStream stream) {
  const ReduceLauncher launcher{stream};
  return run_float_rule<Float8E5M2>(plan, launcher);
}

}  // namespace crossdevice::cuda
