// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/inline_batch.h"

#include <cstring>

namespace crossdevice::detail {
namespace {

/// Room for so many pointers, of which those of an earlier use may be left.
template <class Pointer>
Pointer* room_for(std::size_t count, std::vector<Pointer>& pointers) {
  if (pointers.size() < count) pointers.resize(count);
  return pointers.data();
}

}  // namespace

void fill_inline_block(std::span<const CollectiveValue> values, std::byte* block) {
  for (const CollectiveValue& value : values) {
    for (const Tensor& input : value.inputs) {
      if (input.size_bytes() > 0) std::memcpy(block, input.data(), input.size_bytes());
      block += inline_bytes_of(input);
    }
  }
}

ReduceKernel InlineBatch::find_kernel(ReduceOp op, DType dtype) {
  if (kernel_ == nullptr || op != kernel_op_ || dtype != kernel_dtype_) {
    kernel_ = find_reduce_kernel(op, dtype);
    kernel_op_ = op;
    kernel_dtype_ = dtype;
  }
  return kernel_;
}

void InlineBatch::reduce(ReduceOp op, std::size_t num_sums, std::span<const CollectiveValue> values,
                         std::span<const std::byte* const> blocks) {
  const ReduceOp op_of_sums = op == ReduceOp::MEAN ? ReduceOp::SUM : op;
  std::size_t offset = 0;
  for (std::size_t v = 0; v < values.size(); ++v) {
    const CollectiveValue& value = values[v];
    const Tensor& first = value.inputs[0];
    const std::size_t stride = inline_bytes_of(first);
    const std::size_t num_inputs = value.inputs.size() * blocks.size();
    const void** const inputs = room_for(num_inputs, inputs_);
    const void** input = inputs;
    for (const std::byte* const block : blocks) {
      for (std::size_t i = 0; i < value.inputs.size(); ++i) *input++ = block + offset + i * stride;
    }
    offset += value.inputs.size() * stride;
    prepare(v < num_sums ? op_of_sums : op, value, {inputs, num_inputs}).run();
  }
}

InlineBatch::Reduction InlineBatch::prepare(ReduceOp op, const CollectiveValue& value,
                                            std::span<const void* const> inputs) {
  const Tensor& first = value.inputs[0];
  if (value.outputs.empty() || first.num_elements() == 0) return {};
  void** const outputs = room_for(value.outputs.size(), outputs_);
  for (std::size_t i = 0; i < value.outputs.size(); ++i) outputs[i] = value.outputs[i].data();
  return {.kernel = find_kernel(op, first.dtype()),
          .pass = {.op = op,
                   .dtype = first.dtype(),
                   .inputs = inputs,
                   .outputs = {outputs, value.outputs.size()}},
          .num_elements = first.num_elements()};
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
    const std::size_t stride = inline_bytes_of(first);
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
