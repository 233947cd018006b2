// SPDX-License-Identifier: Apache-2.0
// Reductions of float32 and complex64.
#include "device/cuda/launchers.h"
#include "device/cuda/reduce_launch.cuh"

namespace crossdevice::cuda {

int launch_float32(ReducePlan& plan, detail::CudaStream stream) {
  const ReduceLauncher launcher{stream};
  if (plan.rule == RuleKind::COMPLEX_PRODUCT)
    return run_shape<ComplexProduct<float>>(plan, launcher);
  return run_float_rule<Float32>(plan, launcher);
}

}  // namespace crossdevice::cuda
