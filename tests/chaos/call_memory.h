// SPDX-License-Identifier: Apache-2.0
/// The tensors of one call on one worker: filled before it, looked at after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "crossdevice/device/tensor.h"

#include "chaos/plan.h"
#include "chaos/values.h"

namespace crossdevice::chaos {

/// Who makes the call, in its cluster.
struct Caller {
  int rank = 0;
  int num_workers = 1;
  std::size_t num_devices = 1;
};

class CallMemory {
 public:
  /// `salt` distinguishes calls, and is equal on all workers.
  CallMemory(const Call& call, const Caller& caller, std::uint64_t salt);

  [[nodiscard]] const Call& call() const { return call_; }
  [[nodiscard]] const Caller& caller() const { return caller_; }
  [[nodiscard]] bool is_in_place() const;
  /// [value][device]
  [[nodiscard]] const std::vector<std::vector<Tensor>>& inputs() const { return inputs_; }
  /// The same; of forms in place the inputs. Whoever has results elsewhere puts them here.
  [[nodiscard]] std::vector<std::vector<Tensor>>& outputs() { return outputs_; }
  [[nodiscard]] int root() const { return call_.root % caller_.num_workers; }

  /// What is wrong with the results, and with inputs that should not have been written; empty: nothing.
  [[nodiscard]] std::string wrong_results() const;
  /// What is wrong with the inputs, if nothing may have written them; empty: nothing.
  [[nodiscard]] std::string wrong_inputs() const;
  /// What is wrong with the outputs, if they have a place of their own and nothing may have written them yet; empty: nothing.
  [[nodiscard]] std::string wrong_outputs() const;

  /// All of it as it is now.
  [[nodiscard]] std::vector<std::byte> bytes() const;

 private:
  [[nodiscard]] Tensor make(DType dtype, std::size_t count, std::size_t device);
  [[nodiscard]] Tile own_tile(std::size_t value, std::size_t device) const;
  [[nodiscard]] std::string wrong_output(std::size_t value, const Tensor& output) const;

  Call call_;
  Caller caller_;
  std::uint64_t salt_;
  std::vector<std::unique_ptr<std::byte[]>> foreign_;  // NOLINT(modernize-avoid-c-arrays)
  std::vector<std::vector<Tensor>> inputs_;
  std::vector<std::vector<Tensor>> outputs_;
};

}  // namespace crossdevice::chaos
