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
  inputs_.resize(num_inputs);
  outputs_.resize(num_outputs);
  tensors_.resize(values.size());
  const void** input = inputs_.data();
  void** output = outputs_.data();
  DirectReduceTensor* tensor = tensors_.data();
  std::size_t offset = 0;
  for (const CollectiveValue& value : values) {
    const Tensor& first = value.inputs[0];
    const std::size_t stride = aligned(first.size_bytes());
    *tensor++ = {first.dtype(),
                 first.num_elements(),
                 {input, value.inputs.size() * blocks.size()},
                 {output, value.outputs.size()}};
    for (const std::byte* const block : blocks) {
      for (std::size_t i = 0; i < value.inputs.size(); ++i) *input++ = block + offset + i * stride;
    }
    for (const Tensor& each : value.outputs) *output++ = each.data();
    offset += value.inputs.size() * stride;
  }
  return tensors_;
}

}  // namespace crossdevice::detail
