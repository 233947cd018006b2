// SPDX-License-Identifier: Apache-2.0
/// Batches with guarded buffers, and observers, for the tests of direct_reduce.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/direct_reduce.h"
#include "crossdevice/collective/pack.h"

#include "support/reference.h"

namespace crossdevice::testing {

inline constexpr std::byte kPoison{0xA5};

/// `size_bytes` of memory at an address that is aligned to `misalignment`, not to a cache line, between two guards.
class GuardedBuffer {
 public:
  GuardedBuffer(std::size_t size_bytes, std::size_t misalignment)
      : size_bytes_(size_bytes),
        storage_(std::make_unique<std::byte[]>(size_bytes + 2 * kGuardBytes + kLineBytes)) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.get());
    const std::size_t to_line = (kLineBytes - address % kLineBytes) % kLineBytes;
    data_ = storage_.get() + to_line + kGuardBytes + misalignment % kGuardBytes;
    std::memset(storage_.get(), static_cast<int>(kPoison),
                size_bytes + 2 * kGuardBytes + kLineBytes);
  }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::vector<std::byte> bytes() const { return {data_, data_ + size_bytes_}; }
  void fill(std::mt19937_64& random, DType dtype) const {
    for (std::size_t i = 0; i < size_bytes_; i += sizeof(std::uint64_t)) {
      const std::uint64_t bits = random();
      std::memcpy(data_ + i, &bits, std::min(sizeof bits, size_bytes_ - i));
    }
    if (dtype != DType::BOOL) return;
    for (std::size_t i = 0; i < size_bytes_; ++i) data_[i] &= std::byte{1};
  }
  [[nodiscard]] bool guards_are_intact() const {
    const std::byte* const end = storage_.get() + size_bytes_ + 2 * kGuardBytes + kLineBytes;
    return all_poison(storage_.get(), data_) && all_poison(data_ + size_bytes_, end);
  }
  [[nodiscard]] bool is_untouched() const { return all_poison(data_, data_ + size_bytes_); }

 private:
  static constexpr std::size_t kLineBytes = 64;
  static constexpr std::size_t kGuardBytes = 64;
  static bool all_poison(const std::byte* begin, const std::byte* end) {
    for (; begin != end; ++begin) {
      if (*begin != kPoison) return false;
    }
    return true;
  }

  std::size_t size_bytes_;
  std::unique_ptr<std::byte[]> storage_;
  std::byte* data_;
};

/// Where the results of a tensor go.
struct Outputs {
  std::size_t fresh = 0;                ///< buffers of their own
  std::vector<std::size_t> in_place{};  ///< and these inputs
};

/// A batch of random inputs that knows what it must become.
class TestBatch {
 public:
  explicit TestBatch(ReduceOp op, std::size_t first_group = 0)
      : op_(op), first_group_(first_group), random_(static_cast<std::uint64_t>(op) + 1) {}

  void add(DType dtype, std::size_t num_elements, std::size_t num_inputs, const Outputs& outputs) {
    tensors_.push_back(std::make_unique<TensorBuffers>());
    TensorBuffers& tensor = *tensors_.back();
    const std::size_t in_bytes = num_elements * size_in_bytes(dtype);
    const std::size_t out_bytes = num_elements * size_in_bytes(result_dtype(op_, dtype));
    for (std::size_t k = 0; k < num_inputs; ++k) {
      tensor.inputs.emplace_back(in_bytes, k * size_in_bytes(dtype));
      tensor.inputs.back().fill(random_, dtype);
      tensor.input_addresses.push_back(tensor.inputs.back().data());
      tensor.inputs_before.push_back(tensor.inputs.back().bytes());
    }
    tensor.in_place = outputs.in_place;
    for (std::size_t j = 0; j < outputs.fresh; ++j) {
      tensor.outputs.emplace_back(out_bytes, j * size_in_bytes(result_dtype(op_, dtype)));
      tensor.output_addresses.push_back(tensor.outputs.back().data());
    }
    for (const std::size_t k : outputs.in_place) {
      tensor.output_addresses.push_back(tensor.inputs[k].data());
    }
    tensor.expected =
        reference_reduce(op_, dtype, tensor.input_addresses, num_elements, first_group_);
    views_.push_back({dtype, num_elements, tensor.input_addresses, tensor.output_addresses});
  }

  /// Tensor t has to become this instead, for engines with another order of additions.
  void expect(std::size_t t, std::vector<std::byte> expected) {
    tensors_[t]->expected = std::move(expected);
  }
  [[nodiscard]] std::span<const DirectReduceTensor> views() const { return views_; }
  [[nodiscard]] DirectReduceRequest request() const {
    return {.op = op_, .first_group = first_group_, .tensors = views_};
  }
  [[nodiscard]] std::vector<TensorSize> sizes() const {
    std::vector<TensorSize> sizes;
    for (const DirectReduceTensor& view : views_) sizes.push_back({view.dtype, view.num_elements});
    return sizes;
  }

  /// Whether every output of the tensor holds its result: reads, so that a sanitizer sees unordered writes.
  [[nodiscard]] bool is_reduced(std::size_t t) const {
    const TensorBuffers& tensor = *tensors_[t];
    if (tensor.expected.empty())
      return true;  // memcmp may not see a null pointer, not even for no bytes
    for (void* const output : tensor.output_addresses) {
      if (std::memcmp(output, tensor.expected.data(), tensor.expected.size()) != 0) return false;
    }
    return true;
  }
  void expect_reduced() const {
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      EXPECT_TRUE(is_reduced(t)) << describe(t);
      expect_others_intact(t);
    }
  }
  /// Nothing was written: outputs are poison, inputs as they were.
  void expect_untouched() const {
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      const TensorBuffers& tensor = *tensors_[t];
      for (const GuardedBuffer& output : tensor.outputs) {
        EXPECT_TRUE(output.is_untouched()) << describe(t);
      }
      for (std::size_t k = 0; k < tensor.inputs.size(); ++k) {
        EXPECT_EQ(tensor.inputs[k].bytes(), tensor.inputs_before[k]) << describe(t);
      }
    }
  }
  /// Inputs that are no outputs, and what lies around the buffers, are as they were.
  void expect_others_intact(std::size_t t) const {
    const TensorBuffers& tensor = *tensors_[t];
    for (const GuardedBuffer& output : tensor.outputs) {
      EXPECT_TRUE(output.guards_are_intact()) << describe(t);
    }
    for (std::size_t k = 0; k < tensor.inputs.size(); ++k) {
      EXPECT_TRUE(tensor.inputs[k].guards_are_intact()) << describe(t);
      const bool is_output = std::ranges::find(tensor.in_place, k) != tensor.in_place.end();
      if (!is_output) {
        EXPECT_EQ(tensor.inputs[k].bytes(), tensor.inputs_before[k]) << describe(t);
      }
    }
  }

 private:
  struct TensorBuffers {
    std::vector<GuardedBuffer> inputs;
    std::vector<GuardedBuffer> outputs;
    std::vector<std::size_t> in_place;
    std::vector<const void*> input_addresses;
    std::vector<void*> output_addresses;
    std::vector<std::vector<std::byte>> inputs_before;
    std::vector<std::byte> expected;
  };
  [[nodiscard]] std::string describe(std::size_t t) const {
    const DirectReduceTensor& view = views_[t];
    return std::string(to_string(op_)) + " of " + std::string(to_string(view.dtype)) + " (" +
           std::to_string(view.num_elements) + "), " + std::to_string(view.inputs.size()) +
           " inputs, " + std::to_string(view.outputs.size()) + " outputs, tensor " +
           std::to_string(t);
  }

  ReduceOp op_;
  std::size_t first_group_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<TensorBuffers>> tensors_;
  std::vector<DirectReduceTensor> views_;
};

/// Counts completions, checks each tensor when it is told that it is complete, and stops when asked to.
class RecordingObserver : public OperationObserver {
 public:
  explicit RecordingObserver(const TestBatch& batch)
      : batch_(batch), completions_(batch.sizes().size()), order_(batch.sizes().size()) {}

  /// Called each time the engine asks, with the number of times it asked before.
  std::function<bool(std::size_t)> on_stop_requested = [](std::size_t) { return false; };

  [[nodiscard]] bool stop_requested() const override { return on_stop_requested(asked_++); }
  void tensor_completed(std::size_t tensor) override {
    completions_[tensor].fetch_add(1);
    order_[num_completed_.fetch_add(1)] = tensor;
    if (!batch_.is_reduced(tensor)) wrong_.fetch_add(1);
  }

  [[nodiscard]] std::size_t num_completed() const { return num_completed_; }
  [[nodiscard]] std::size_t num_wrong() const { return wrong_; }
  [[nodiscard]] bool is_completed(std::size_t tensor) const { return completions_[tensor] != 0; }
  [[nodiscard]] std::vector<std::size_t> order() const {
    return {order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(num_completed_.load())};
  }
  void expect_each_tensor_once() const {
    for (std::size_t t = 0; t < completions_.size(); ++t) {
      EXPECT_EQ(completions_[t], 1) << "tensor " << t;
    }
    EXPECT_EQ(num_wrong(), 0u) << "tensors were reported before they were reduced";
  }

 private:
  const TestBatch& batch_;
  std::vector<std::atomic<int>> completions_;
  std::vector<std::size_t> order_;
  std::atomic<std::size_t> num_completed_ = 0;
  std::atomic<std::size_t> wrong_ = 0;
  mutable std::atomic<std::size_t> asked_ = 0;
};

}  // namespace crossdevice::testing
