// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/inline_batch.h"

#include <cstring>

namespace crossdevice::detail {
namespace {

constexpr std::size_t kAlignment = 64;

constexpr std::size_t aligned(std::size_t size_bytes) {
  return (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::size_t inline_bytes_of(const Tensor& tensor) { return aligned(tensor.size_bytes()); }

std::size_t inline_bytes(std::span<const CollectiveValue> values) {
  std::size_t total = 0;
  for (const CollectiveValue& value : values) {
    total += value.inputs.size() * aligned(value.inputs[0].size_bytes());
  }
  return total;
}

void fill_inline_block(std::span<const CollectiveValue> values, std::byte* block) {
  for (const CollectiveValue& value : values) {
    for (const Tensor& input : value.inputs) {
      if (input.size_bytes() > 0) std::memcpy(block, input.data(), input.size_bytes());
      block += aligned(input.size_bytes());
    }
  }
}

std::span<const DirectReduceTensor> InlineBatch::tensors(std::span<const CollectiveValue> values,
                                                         std::span<const std::byte* const> blocks) {
  std::size_t num_inputs = 0;
  std::size_t num_outputs = 0;
  for (const CollectiveValue& value : values) {
    num_inputs += value.inputs.size() * blocks.size();
    num_outputs += value.outputs.size();
  }
  inputs_.clear();
  outputs_.clear();
  tensors_.clear();
  inputs_.reserve(num_inputs);  // spans point into them while they grow
  outputs_.reserve(num_outputs);
  tensors_.reserve(values.size());
  std::size_t offset = 0;
  for (const CollectiveValue& value : values) {
    const std::size_t stride = aligned(value.inputs[0].size_bytes());
    const std::size_t first_input = inputs_.size();
    const std::size_t first_output = outputs_.size();
    for (const std::byte* const block : blocks) {
      for (std::size_t i = 0; i < value.inputs.size(); ++i) {
        inputs_.push_back(block + offset + i * stride);
      }
    }
    for (const Tensor& output : value.outputs) outputs_.push_back(output.data());
    offset += value.inputs.size() * stride;
    tensors_.push_back({value.inputs[0].dtype(), value.inputs[0].num_elements(),
                        std::span<const void* const>(inputs_).subspan(first_input),
                        std::span<void* const>(outputs_).subspan(first_output)});
  }
  return tensors_;
}

}  // namespace crossdevice::detail
