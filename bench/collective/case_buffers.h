// SPDX-License-Identifier: Apache-2.0
/// The memory of one case: every device's inputs and outputs, what they must hold, and who writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/core/shape.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/tensor.h"
#include "crossdevice/ops/values.h"

#include "collective/collective.h"
#include "collective/owner_threads.h"
#include "collective/pattern.h"

namespace crossdevice::bench {

/// POOL: Tensor::empty. FOREIGN: the caller's own, seen through Tensor::view.
enum class MemoryKind : std::uint8_t { POOL, FOREIGN };

/// One line of the table, as one worker sees it.
struct Case {
  Collective collective = Collective::ALL_REDUCE;
  DType dtype = DType::FLOAT32;
  ReduceOp op = ReduceOp::SUM;  ///< SUM where nothing is reduced
  Devices devices;
  std::size_t root = 0;         ///< position in devices
  std::vector<Shape> shapes;    ///< of one device's inputs; several for BATCH_REDUCE only
  std::size_t num_workers = 1;  ///< each with as many devices
  std::size_t worker = 0;       ///< which of them this one is
  MemoryKind memory = MemoryKind::POOL;

  /// Devices of all workers together.
  [[nodiscard]] std::size_t num_replicas() const { return num_workers * devices.size(); }

  /// Elements of one device's inputs, all tensors together.
  [[nodiscard]] std::size_t num_input_elements() const;
  /// The size column: one device's input, for GATHER the whole result.
  [[nodiscard]] std::size_t size_bytes() const;
  [[nodiscard]] DType output_dtype() const {
    return reduces(collective) ? result_dtype(op, dtype) : dtype;
  }
  /// Bytes of one device's outputs.
  [[nodiscard]] std::size_t output_bytes() const;
  /// Whether outputs may be the inputs: not for GATHER, nor where the result has another dtype.
  [[nodiscard]] bool can_run_in_place() const;
  /// What this worker's buffers take, with what the limit's copy needs to write as much as it reads.
  [[nodiscard]] std::size_t memory_bytes() const;
};

/// One worker's buffers.
///
/// Memory   each tensor has a guard behind it. On GPUs the inputs are kept once more there, so that they are rewritten without the host.
/// Order    on GPUs everything is enqueued on the library's own streams; count_wrong() waits for it.
class CaseBuffers {
 public:
  CaseBuffers(const Case& test_case, OwnerThreads& owners);

  /// One per tensor of the batch, each with a component per device.
  [[nodiscard]] std::span<const PerReplica> inputs() const { return inputs_; }
  /// The same for the results: on every device, or on the root alone (REDUCE, GATHER).
  [[nodiscard]] std::span<const PerReplica> outputs(Placement placement) const {
    return placement == Placement::IN_PLACE ? in_place_outputs_ : outputs_;
  }

  /// Every device's owner writes that device's inputs.
  void rewrite_inputs();
  /// Fills the outputs, and the guards behind all buffers, with bytes that are no result. In place only the guards.
  void poison_outputs(Placement placement);
  /// Elements of the outputs that are wrong, plus guards that were overwritten; out of place also inputs that were changed.
  [[nodiscard]] std::size_t count_wrong(Placement placement);

 private:
  struct Block {
    std::shared_ptr<void> foreign;  // none: from the pool
    Tensor memory;                  // bytes, with the guard
    Tensor view;
    std::size_t owner = 0;
    Tensor kept{};  // on GPUs: what the input holds; none: not made yet
  };
  Block allocate(DType dtype, const Shape& shape, std::size_t owner);
  [[nodiscard]] PatternPlace place(std::size_t tensor, std::size_t replica) const;
  void rewrite_input(std::size_t tensor, std::size_t owner);
  [[nodiscard]] std::size_t count_wrong_output(std::size_t tensor, const Tensor& output) const;

  Case case_;
  OwnerThreads& owners_;
  std::vector<std::vector<Block>> input_blocks_;   // [tensor][device]
  std::vector<std::vector<Block>> output_blocks_;  // [tensor][destination]
  std::vector<PerReplica> inputs_;
  std::vector<PerReplica> outputs_;
  std::vector<PerReplica> in_place_outputs_;
};

}  // namespace crossdevice::bench
