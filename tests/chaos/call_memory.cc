// SPDX-License-Identifier: Apache-2.0
#include "chaos/call_memory.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

namespace crossdevice::chaos {
namespace {

std::size_t input_count(const Call& call, const Caller& caller) {
  const auto workers = static_cast<std::size_t>(caller.num_workers);
  if (call.form == Form::BARRIER) return 0;
  return call.form == Form::REDUCE_SCATTER ? call.count * workers : call.count;
}

std::size_t output_count(const Call& call, const Caller& caller) {
  const auto workers = static_cast<std::size_t>(caller.num_workers);
  if (call.form == Form::ALL_GATHER || call.form == Form::ROOTED_GATHER)
    return call.count * workers;
  return call.count;
}

bool reduces(Form form) {
  return form <= Form::ASYNCHRONOUS || form == Form::REDUCE_SCATTER || form == Form::ROOTED_REDUCE;
}

}  // namespace

CallMemory::CallMemory(const Call& call, const Caller& caller, std::uint64_t salt)
    : call_(call), caller_(caller), salt_(salt) {
  const DType result = reduces(call.form) ? result_dtype(call.op, call.dtype) : call.dtype;
  for (std::size_t value = 0; value < call.num_values; ++value) {
    std::vector<Tensor> inputs;
    std::vector<Tensor> outputs;
    for (std::size_t device = 0; device < caller.num_devices; ++device) {
      inputs.push_back(make(call.dtype, input_count(call, caller), device));
      fill(bytes_of(inputs.back()), size_in_bytes(call.dtype), own_tile(value, device));
      if (is_in_place()) continue;
      if (call.form == Form::OPS_GATHER || call.form == Form::BARRIER) continue;
      outputs.push_back(make(result, output_count(call, caller), device));
      poison(bytes_of(outputs.back()));
    }
    if (is_in_place()) outputs = inputs;
    inputs_.push_back(std::move(inputs));
    outputs_.push_back(std::move(outputs));
  }
}

bool CallMemory::is_in_place() const {
  return call_.form == Form::REDUCE_IN_PLACE || call_.form == Form::BATCH_IN_PLACE ||
         call_.form == Form::ASYNCHRONOUS || call_.form == Form::BROADCAST;
}

Tensor CallMemory::make(DType dtype, std::size_t count, std::size_t device) {
  const Device on("CPU:" + std::to_string(device));
  if (!call_.is_foreign) return Tensor::empty(dtype, Shape{count}, on);
  foreign_.push_back(std::make_unique<std::byte[]>(count * size_in_bytes(dtype) + 1));  // NOLINT
  return Tensor::view(static_cast<void*>(foreign_.back().get()), dtype, Shape{count}, on);
}

Tile CallMemory::own_tile(std::size_t value, std::size_t device) const {
  return input_tile(call_.op, call_.dtype, {salt_, value, caller_.rank, device});
}

std::string CallMemory::wrong_output(std::size_t value, const Tensor& output) const {
  const std::size_t size = size_in_bytes(output.dtype());
  const std::span<const std::byte> bytes = bytes_of(output);
  if (reduces(call_.form)) {
    const DType expected = result_dtype(call_.op, call_.dtype);
    if (output.dtype() != expected) return fmt::format("{}", to_string(output.dtype()));
    const Tile tile =
        reduced_tile(call_.op, call_.dtype, salt_, value, caller_.num_workers, caller_.num_devices);
    const std::size_t first = call_.form == Form::REDUCE_SCATTER
                                  ? call_.count * static_cast<std::size_t>(caller_.rank)
                                  : 0;
    if (output.num_elements() != call_.count)
      return fmt::format("{} elements", output.num_elements());
    return matches(bytes, size, tile, first) ? "" : "other elements";
  }
  if (call_.form == Form::BROADCAST) {
    const Tile tile = input_tile(call_.op, call_.dtype, {salt_, value, root(), 0});
    return matches(bytes, size, tile) ? "" : "other elements than the root's";
  }
  const std::size_t part = call_.count * size;
  const auto parts = static_cast<std::size_t>(caller_.num_workers) * caller_.num_devices;
  if (bytes.size() != part * parts) return fmt::format("{} elements", output.num_elements());
  for (std::size_t i = 0; i < parts; ++i) {
    const Tile tile = input_tile(
        call_.op, call_.dtype,
        {salt_, value, static_cast<int>(i / caller_.num_devices), i % caller_.num_devices});
    if (!matches(bytes.subspan(i * part, part), size, tile)) {
      return fmt::format("other elements in part {}", i);
    }
  }
  return "";
}

std::string CallMemory::wrong_results() const {
  if (call_.form == Form::BARRIER) return "";
  const bool is_rooted = call_.form == Form::ROOTED_REDUCE || call_.form == Form::ROOTED_GATHER;
  for (std::size_t value = 0; value < outputs_.size(); ++value) {
    if (is_rooted && caller_.rank != root()) break;
    if (outputs_[value].size() != caller_.num_devices) {
      return fmt::format("value {} has {} results", value, outputs_[value].size());
    }
    for (const Tensor& output : outputs_[value]) {
      const std::string wrong = wrong_output(value, output);
      if (!wrong.empty()) return fmt::format("value {} has {}", value, wrong);
    }
  }
  return is_in_place() ? "" : wrong_inputs();
}

std::string CallMemory::wrong_inputs() const {
  for (std::size_t value = 0; value < inputs_.size(); ++value) {
    for (std::size_t device = 0; device < inputs_[value].size(); ++device) {
      if (!matches(bytes_of(inputs_[value][device]), size_in_bytes(call_.dtype),
                   own_tile(value, device))) {
        return fmt::format("input {} on device {} was written", value, device);
      }
    }
  }
  return "";
}

std::string CallMemory::wrong_outputs() const {
  if (is_in_place()) return "";
  for (std::size_t value = 0; value < outputs_.size(); ++value) {
    for (std::size_t device = 0; device < outputs_[value].size(); ++device) {
      if (!is_poison(bytes_of(outputs_[value][device]))) {
        return fmt::format("output {} on device {} was written", value, device);
      }
    }
  }
  return "";
}

std::vector<std::byte> CallMemory::bytes() const {
  std::vector<std::byte> all;
  for (const auto& values : {inputs_, outputs_}) {
    for (const std::vector<Tensor>& devices : values) {
      for (const Tensor& tensor : devices) {
        const std::span<const std::byte> each = bytes_of(tensor);
        all.insert(all.end(), each.begin(), each.end());
      }
    }
  }
  return all;
}

}  // namespace crossdevice::chaos
