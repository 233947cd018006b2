// SPDX-License-Identifier: Apache-2.0
/// The reduce kernel and its launch, for the source files that instantiate them.
#pragma once

#include <cuda_runtime.h>

#include "device/cuda/reduce_plan.h"

namespace crossdevice::cuda {

/// Blocks that fit into a multiprocessor at once, by the registers they may take: 4 leave a thread 64, which the kernels of fixed numbers of inputs need
/// and no more; 2 leave 128, so that no other kernel spills.
template <class Shape>
inline constexpr int kMinBlocks = Shape::kNumInputs != 0 && Shape::kWidth < 16 ? 4 : 2;

template <class Rule, class Shape>
__global__ void __launch_bounds__(kBlockThreads, kMinBlocks<Shape>)
    reduce_kernel(const __grid_constant__ ReduceArguments arguments) {
  reduce_thread<Rule, Shape>(arguments, blockIdx.x, gridDim.x, threadIdx.x);
}

/// Enqueues; neither allocates nor waits.
struct ReduceLauncher {
  cudaStream_t stream;

  template <class Rule, class Shape>
  cudaError_t run(const ReduceArguments& arguments) const {
    // The launch copies the argument and does not write to it.
    void* parameters[] = {const_cast<ReduceArguments*>(&arguments)};
    return cudaLaunchKernel(reduce_kernel<Rule, Shape>, dim3(blocks_for<Shape>(arguments)),
                            dim3(kBlockThreads), parameters, 0, stream);
  }
};

}  // namespace crossdevice::cuda
