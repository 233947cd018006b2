// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "support/spinning_kernel.h"

namespace crossdevice::testing {
namespace {

__global__ void spin(volatile unsigned* state, unsigned long long limit_ns) {
  unsigned long long begin = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  unsigned long long now = begin;
  while (*state == SpinningKernel::kSpins && now - begin < limit_ns) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  }
  *state = now - begin < limit_ns ? SpinningKernel::kEnded : SpinningKernel::kGaveUp;
}

}  // namespace

int launch_spinning_kernel(void* stream, volatile unsigned* state, double limit_seconds) {
  auto limit_ns = static_cast<unsigned long long>(limit_seconds * 1e9);
  void* parameters[] = {&state, &limit_ns};
  return cudaLaunchKernel(spin, dim3(1), dim3(1), parameters, 0, static_cast<cudaStream_t>(stream));
}

}  // namespace crossdevice::testing
