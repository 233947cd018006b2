// SPDX-License-Identifier: Apache-2.0
/// Small batches as one block of bytes: every worker gets everybody's blocks and reduces all of them itself.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "crossdevice/collective/collective_request.h"
#include "crossdevice/collective/direct_reduce.h"
#include "crossdevice/core/dtype.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/reduce_kernel.h"

namespace crossdevice::detail {

/// What a tensor takes in a block: its bytes, aligned to 64.
[[nodiscard]] inline std::size_t inline_bytes_of(const Tensor& tensor) {
  constexpr std::size_t kAlignment = 64;
  return (tensor.size_bytes() + kAlignment - 1) / kAlignment * kAlignment;
}

/// Lays this worker's inputs one after the other.
void fill_inline_block(std::span<const CollectiveValue> values, std::byte* block);

/// All blocks together, for direct_reduce or reduced at once. Its vectors are kept from use to use.
class InlineBatch {
 public:
  /// Reduces all blocks into the values' outputs, whole, on the calling thread: for batches so small that no other is worth waking. The first
  /// `num_sums` values hold combinations already, of which a mean is the sum. Arithmetic and order are direct_reduce's.
  void reduce(ReduceOp op, std::size_t num_sums, std::span<const CollectiveValue> values,
              std::span<const std::byte* const> blocks);
  /// One value's part of it, which can be made ready before everybody's elements are there.
  struct Reduction {
    ReduceKernel kernel = nullptr;  // null: nothing to do
    ReducePass pass{};
    std::size_t num_elements = 0;
    void run() const {
      if (kernel != nullptr) kernel(pass, 0, num_elements);
    }
  };
  /// Of a value of which everybody's elements lie at `inputs`. For one run(), before the next call.
  [[nodiscard]] Reduction prepare(ReduceOp op, const CollectiveValue& value,
                                  std::span<const void* const> inputs);
  /// `blocks` by rank. The result lives until the next call.
  [[nodiscard]] std::span<const DirectReduceTensor> tensors(
      std::span<const CollectiveValue> values, std::span<const std::byte* const> blocks);

 private:
  /// As the last value's, which most calls repeat.
  [[nodiscard]] ReduceKernel find_kernel(ReduceOp op, DType dtype);

  ReduceOp kernel_op_ = ReduceOp::SUM;
  DType kernel_dtype_ = DType::FLOAT32;
  ReduceKernel kernel_ = nullptr;  // of the two above; null: none yet
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<DirectReduceTensor> tensors_;
};

}  // namespace crossdevice::detail
