// SPDX-License-Identifier: Apache-2.0
/// CUDA's codes as the table's.
#pragma once

#include <cuda_runtime_api.h>

#include "crossdevice/device/cuda_api.h"

namespace crossdevice::cuda {

/// Forgets the error on this thread: it has been handed over, and who calls cudaGetLastError() in this process next asks about a call of its own.
inline detail::CudaStatus status_of(cudaError_t error) {
  if (error != cudaSuccess) (void)cudaGetLastError();
  return static_cast<detail::CudaStatus>(error);
}

}  // namespace crossdevice::cuda
