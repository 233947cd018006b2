// SPDX-License-Identifier: Apache-2.0
/// Where tensors lie, for other processes.
#pragma once

#include <optional>

#include "crossdevice/comm/shared_memory_group.h"
#include "crossdevice/device/tensor.h"

namespace crossdevice::detail {

/// Nothing for memory that is not from a pool, or from one that cannot be shared.
[[nodiscard]] std::optional<SharedLocation> locate(const Tensor& tensor);

/// Errors   ResourceExhaustedError: the system gave the pool this memory without a file descriptor, so that no other process can map it; what is
///          allocated afterwards is of another segment.
[[nodiscard]] SharedLocation require_location(const Tensor& pooled);

}  // namespace crossdevice::detail
