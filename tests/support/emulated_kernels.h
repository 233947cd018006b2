// SPDX-License-Identifier: Apache-2.0
/// Our kernels' launchers over emulated CUDA: the host back-end's loops, in stream order.
#pragma once

#include <memory>
#include <utility>

#include "crossdevice/device/kernel_api.h"

#include "support/emulated_cuda.h"

namespace crossdevice::testing {

/// What a launch names is copied into it. Arguments that the table forbids are violations, and return INVALID_VALUE.
class EmulatedKernels final : public detail::KernelApi {
 public:
  explicit EmulatedKernels(std::shared_ptr<EmulatedCuda> cuda) : cuda_(std::move(cuda)) {}
  detail::CudaStatus copy_ranges(const detail::CopyLaunch& launch) override;
  detail::CudaStatus reduce(const detail::ReduceLaunch& launch) override;
  detail::CudaStatus reduce_many(const detail::ManyReduceLaunch& launch,
                                 bool& has_launched) override;

 private:
  detail::CudaStatus refuse(const std::string& text);
  detail::CudaStatus launch_reductions(const char* name, const detail::ManyReduceLaunch& launch);

  std::shared_ptr<EmulatedCuda> cuda_;
};

}  // namespace crossdevice::testing
