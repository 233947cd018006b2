// SPDX-License-Identifier: Apache-2.0
// Reductions of integers of 32 bits, and copies of that size.
#include <cstdint>

#include "device/cuda/launchers.h"
#include "device/cuda/reduce_launch.cuh"

namespace crossdevice::cuda {

int launch_bits32(ReducePlan& plan, detail::CudaStream stream) {
  const ReduceLauncher launcher{stream};
  return run_integer_rule<std::uint32_t>(plan, launcher);
}

}  // namespace crossdevice::cuda
