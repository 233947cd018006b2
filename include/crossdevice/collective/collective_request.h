// SPDX-License-Identifier: Apache-2.0
/// What the engines of several workers are asked for, and how they show each other's tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "crossdevice/comm/call_difference.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/core/dtype.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/core/shape.h"
#include "crossdevice/device/tensor.h"

namespace crossdevice {

/// One value of a batch: this worker's inputs and where its results go, also nowhere; of both equally many on every worker, of inputs also in every
/// value. Outputs hold
/// result_dtype(op, dtype) and are exactly one of the inputs or overlap nothing else of the batch.
struct CollectiveValue {
  std::span<const Tensor> inputs{};
  std::span<const Tensor> outputs{};
};

/// What a fingerprint was made of, in words, for the error of calls that differ.
class CallParticulars {
 public:
  CallParticulars() = default;
  virtual ~CallParticulars() = default;
  CallParticulars(const CallParticulars&) = delete;
  CallParticulars& operator=(const CallParticulars&) = delete;
  virtual void describe(CallDetails& details) const = 0;
};

/// What is done, and what errors call it.
struct CollectiveRequest {
  std::string_view kind = "all_reduce";  ///< up to 23 characters
  std::uint64_t sequence = 0;
  ReduceOp op = ReduceOp::SUM;
  Deadline deadline = Deadline::never();
  /// The bits do not depend on the algorithm, on what else is in the batch, or on where workers run.
  bool deterministic = false;
  /// Nor on which inputs are one worker's: all of them are combined in one order, by rank and then in their order there. With `deterministic` only.
  bool grouping_independent = false;
  /// Of the caller's larger call, where this one is a part of it: workers whose numbers differ make different calls. So nothing is written where
  /// only a later part differs.
  std::uint64_t fingerprint = 0;
  /// Of that call; null: nothing besides.
  const CallParticulars* particulars = nullptr;
};

/// A tensor of some worker, as the others see it until the operation ends.
struct RemoteTensor {
  DType dtype = DType::FLOAT32;
  Shape shape;
  const std::byte* data = nullptr;
};

}  // namespace crossdevice
