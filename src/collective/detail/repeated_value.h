// SPDX-License-Identifier: Apache-2.0
/// A call among workers that repeats the one before. Programs do, and to check and describe one of the smallest takes longer than its reduction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "crossdevice/collective/collective_request.h"
#include "crossdevice/comm/group_operation.h"
#include "crossdevice/core/dtype.h"
#include "crossdevice/core/reduce_op.h"

#include "collective/detail/inline_batch.h"

namespace crossdevice::detail {

/// What was announced of one value with one input, and how it is reduced.
///
/// Why a call that repeats() needs no check: what require_batch() looks at, what is announced, and which kernel reduces it all follow from what is compared
/// here. Where the elements lie decides none of it.
class RepeatedValue {
 public:
  /// Whether the call is the described one, with other elements and another number.
  [[nodiscard]] bool repeats(const CollectiveRequest& request,
                             std::span<const CollectiveValue> values) const {
    return is_known_ && values.size() == 1 && values[0].inputs.size() == 1 &&
           values[0].outputs.size() == 1 && request.kind == kind() &&
           key_ == key_of(request, values[0]);
  }
  /// Of a call that was found to be right. `operation`: what is announced of it.
  void describe(const CollectiveRequest& request, const CollectiveValue& value,
                const GroupOperationInfo& operation) {
    is_known_ = false;
    operation_ = prepare_operation(operation);
    kind_size_ = request.kind.size() < operation_.packed.kind.size() ? request.kind.size() : 0;
    if (value.outputs.size() == 1) key_ = key_of(request, value);
  }
  /// The rest, which may wait until it is announced.
  void describe_reduction(InlineBatch& batch, ReduceOp op, const CollectiveValue& value) {
    reduction_ = batch.prepare(op, value, {});
    is_known_ = kind_size_ > 0 && value.outputs.size() == 1;
  }

  [[nodiscard]] const PreparedOperation& operation() const { return operation_; }
  [[nodiscard]] std::size_t size_bytes() const { return operation_.packed.size_bytes; }
  [[nodiscard]] DType dtype() const { return static_cast<DType>(operation_.packed.dtype); }
  /// Of the described value, or of one that repeats() it, of which everybody's elements lie at `inputs`. For one use, before the next call.
  [[nodiscard]] const InlineBatch::Reduction& reduction_of(const CollectiveValue& value,
                                                           std::span<const void* const> inputs) {
    if (value.outputs.size() == 1) {  // else the batch's, as nothing repeats that
      output_[0] = value.outputs[0].data();
      reduction_.pass.outputs = output_;
    }
    reduction_.pass.inputs = inputs;
    return reduction_;
  }

 private:
  struct Key {
    std::uint64_t fingerprint = 0;
    std::size_t num_elements = 0;
    std::size_t num_results = 0;
    ReduceOp op = ReduceOp::SUM;
    DType dtype = DType::FLOAT32;
    DType result_dtype = DType::FLOAT32;
    bool is_deterministic = false;
    bool is_grouping_independent = false;
    bool is_read_only = false;  // the output
    friend bool operator==(const Key&, const Key&) = default;
  };
  [[nodiscard]] static Key key_of(const CollectiveRequest& request, const CollectiveValue& value) {
    const Tensor& input = value.inputs[0];
    const Tensor& output = value.outputs[0];
    return {.fingerprint = request.fingerprint,
            .num_elements = input.num_elements(),
            .num_results = output.num_elements(),
            .op = request.op,
            .dtype = input.dtype(),
            .result_dtype = output.dtype(),
            .is_deterministic = request.deterministic,
            .is_grouping_independent = request.grouping_independent,
            .is_read_only = output.is_read_only()};
  }
  [[nodiscard]] std::string_view kind() const {
    return {operation_.packed.kind.data(), kind_size_};
  }

  bool is_known_ = false;
  std::size_t kind_size_ = 0;  // 0: too long to be kept
  Key key_;
  PreparedOperation operation_;
  InlineBatch::Reduction reduction_;
  std::array<void*, 1> output_{};  // where there is one
};

}  // namespace crossdevice::detail
