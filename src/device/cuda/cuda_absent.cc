// SPDX-License-Identifier: Apache-2.0
// In the place of CUDA, in a build without it.
#if !defined(CROSSDEVICE_WITH_CUDA)

#include "device/detail/cuda_platform.h"
#include "device/detail/nvtx_ranges.h"

namespace crossdevice::detail {

GpuPlatform make_cuda_platform() {
  return {
      .cuda = nullptr, .kernels = nullptr, .reason_against = "this library was built without CUDA"};
}

void install_nvtx_ranges() {}

}  // namespace crossdevice::detail

#endif
