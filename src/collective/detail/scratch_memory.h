// SPDX-License-Identifier: Apache-2.0
/// Memory from the host's pool that grows with what it is needed for.
#pragma once

#include <cstddef>
#include <optional>

#include "crossdevice/core/dtype.h"
#include "crossdevice/device/tensor.h"

namespace crossdevice::detail {

class ScratchMemory {
 public:
  /// At least as many bytes, with any contents; what it returned before is no longer valid.
  std::byte* reserve(std::size_t size_bytes) {
    if (!memory_.has_value() || memory_->size_bytes() < size_bytes) {
      memory_.reset();  // gives back before it takes
      memory_ = Tensor::empty(DType::UINT8, {size_bytes}, "CPU:0");
    }
    return begin();
  }
  [[nodiscard]] std::byte* begin() const {
    return memory_.has_value() ? static_cast<std::byte*>(memory_->data()) : nullptr;
  }

 private:
  std::optional<Tensor> memory_;
};

}  // namespace crossdevice::detail
