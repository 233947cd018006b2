// SPDX-License-Identifier: Apache-2.0
/// The reduce kernel and its launch, for the source files that instantiate them.
#pragma once

#include <cuda_runtime.h>

#include "device/cuda/reduce_plan.h"

namespace crossdevice::cuda {

/// Blocks that fit into a multiprocessor at once, by the registers they may take: 4 leave a thread 64, which the kernels of fixed numbers of inputs need
/// and no more; 3 leave 80, which is the most that a thread of 16 numbers can do with if enough of them are to be there; 2 leave 128, so that no other kernel
/// spills.
template <class Shape>
inline constexpr int kMinBlocks = Shape::kNumInputs != 0 && !kHasOneRun<Shape>  ? 4
                                  : Shape::kNumInputs == 0 && kHasOneRun<Shape> ? 3
                                                                                : 2;
/// Of kernels for many tensors, which keep more in mind.
template <class Shape>
inline constexpr int kMinBlocksOfMany = Shape::kNumInputs != 0 && !kHasOneRun<Shape> ? 4 : 2;

template <class Rule, class Shape>
__global__ void __launch_bounds__(kBlockThreads, kMinBlocks<Shape>)
    reduce_kernel(const __grid_constant__ ReduceArguments arguments) {
  reduce_thread<Rule, Shape>(arguments, blockIdx.x, gridDim.x, threadIdx.x);
}

template <class Rule, class Shape>
__global__ void __launch_bounds__(kBlockThreads, kMinBlocksOfMany<Shape>)
    reduce_many_kernel(const __grid_constant__ ManyReduceArguments arguments) {
  reduce_many_thread<Rule, Shape>(arguments, blockIdx.x, gridDim.x, threadIdx.x);
}

/// Enqueues; neither allocates nor waits.
struct ReduceLauncher {
  cudaStream_t stream;

  template <class Rule, class Shape>
  int run(const ReduceArguments& arguments) const {
    return launch(reduce_kernel<Rule, Shape>, blocks_for<Shape>(arguments), arguments);
  }
  template <class Rule, class Shape>
  int run(const ManyReduceArguments& arguments) const {
    return launch(reduce_many_kernel<Rule, Shape>, arguments.num_tiles, arguments);
  }

 private:
  template <class Arguments>
  int launch(void (*kernel)(Arguments), std::uint32_t num_blocks,
             const Arguments& arguments) const {
    // The launch copies the argument and does not write to it.
    void* parameters[] = {const_cast<Arguments*>(&arguments)};
    return cudaLaunchKernel(kernel, dim3(num_blocks), dim3(kBlockThreads), parameters, 0, stream);
  }
};

}  // namespace crossdevice::cuda
