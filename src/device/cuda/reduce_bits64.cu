// SPDX-License-Identifier: Apache-2.0
// Reductions of integers of 64 bits, and copies of that size.
#include <cstdint>

#include "device/cuda/launchers.h"
#include "device/cuda/reduce_launch.cuh"

namespace crossdevice::cuda {

int launch_bits64(ReducePlan& plan, detail::CudaStream stream) {
  const ReduceLauncher launcher{stream};
  return run_integer_rule<std::uint64_t>(plan, launcher);
}

}  // namespace crossdevice::cuda
