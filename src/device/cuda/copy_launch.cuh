// SPDX-License-Identifier: Apache-2.0
/// The kernels that copy ranges and their launch, for the source files that instantiate them.
#pragma once

#include <cuda_runtime.h>

#include "device/cuda/copy_plan.h"

namespace crossdevice::cuda {

template <class Copier, class Arguments>
__global__ void __launch_bounds__(kBlockThreads, 4)
    copy_kernel(const __grid_constant__ Arguments arguments) {
  copy_thread<Copier>(arguments, blockIdx.x, gridDim.x, threadIdx.x);
}

/// Enqueues; neither allocates nor waits.
struct CopyLauncher {
  cudaStream_t stream;

  template <class Copier, class Arguments>
  int run(Arguments& arguments) const {
    void* parameters[] = {&arguments};
    return cudaLaunchKernel(copy_kernel<Copier, Arguments>, dim3(arguments.num_tiles),
                            dim3(kBlockThreads), parameters, 0, stream);
  }
};

}  // namespace crossdevice::cuda
