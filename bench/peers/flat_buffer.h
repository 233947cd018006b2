// SPDX-License-Identifier: Apache-2.0
/// Several tensors in one buffer, as a program packs its gradients whose library has no call for lists.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "crossdevice/ops/values.h"

namespace crossdevice::bench {

/// Keeps its memory, which is the C library's, from call to call. Tensors are of float32, on one host device each.
class FlatBuffer {
 public:
  /// Copies the tensors to the buffer, one behind the other; the buffer, as far as they fill it.
  [[nodiscard]] std::span<float> pack(std::span<const PerReplica> tensors);
  /// Copies the buffer to tensors of the sizes of those that were packed.
  void unpack(std::span<const PerReplica> tensors) const;

 private:
  void reserve(std::size_t count);

  std::shared_ptr<float> memory_;
  std::size_t capacity_ = 0;  // elements
};

}  // namespace crossdevice::bench
