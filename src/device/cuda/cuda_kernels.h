// SPDX-License-Identifier: Apache-2.0
/// Our kernels as a table.
#pragma once

#include <memory>

#include "crossdevice/device/kernel_api.h"

namespace crossdevice::cuda {

[[nodiscard]] std::shared_ptr<detail::KernelApi> make_cuda_kernels();

}  // namespace crossdevice::cuda
