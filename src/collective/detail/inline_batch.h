// SPDX-License-Identifier: Apache-2.0
/// Small batches as one block of bytes: every worker gets everybody's blocks and reduces all of them itself.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "crossdevice/collective/collective_request.h"
#include "crossdevice/collective/direct_reduce.h"

namespace crossdevice::detail {

/// What a tensor takes in a block: its bytes, aligned to 64.
[[nodiscard]] std::size_t inline_bytes_of(const Tensor& tensor);
/// What this worker's inputs take.
[[nodiscard]] std::size_t inline_bytes(std::span<const CollectiveValue> values);

/// Lays this worker's inputs one after the other.
void fill_inline_block(std::span<const CollectiveValue> values, std::byte* block);

/// The tensors of direct_reduce over all blocks. Its vectors are kept from use to use.
class InlineBatch {
 public:
  /// `blocks` by rank. The result lives until the next call.
  [[nodiscard]] std::span<const DirectReduceTensor> tensors(
      std::span<const CollectiveValue> values, std::span<const std::byte* const> blocks);

 private:
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<DirectReduceTensor> tensors_;
};

}  // namespace crossdevice::detail
