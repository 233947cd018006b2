// SPDX-License-Identifier: Apache-2.0
/// From the sizes and devices of a batch to its packs and what each does: worked out once per kind of batch.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "crossdevice/collective/pack.h"
#include "crossdevice/collective/scheduled_reduce.h"
#include "crossdevice/core/dtype.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/device.h"
#include "crossdevice/ops/all_reduce_spec.h"

#include "ops/detail/worker_layout.h"

namespace crossdevice::detail {

/// What a plan depends on, for one value.
struct WorkerBatchItem {
  Devices devices;
  TensorSize size;
  friend bool operator==(const WorkerBatchItem&, const WorkerBatchItem&) = default;
};

/// Whether the order in which values are combined can make a difference to the bits.
enum class Order : std::uint8_t { COUNTS, DOES_NOT_COUNT };
/// Integers wrap, and are exact in a MEAN; bool combines by and and or; a minimum is one of the values.
[[nodiscard]] Order order_of_combining(ReduceOp op, DType dtype);

/// Of one MultiWorkerAllReduce; used by one thread at a time.
class WorkerBatchPlans {
 public:
  struct Workers {
    Devices devices;
    int num_gpus_per_worker = 0;
    AllReduceSpec spec;
    PackingOptions packing;  ///< without bytes_per_pack
  };
  explicit WorkerBatchPlans(Workers workers) : workers_(std::move(workers)) {}
  [[nodiscard]] const Workers& workers() const { return workers_; }

  /// The packs of a batch; ranges refer to `items`. Valid until the next call. Allocates nothing for a kind of batch that it knows.
  ///
  /// Errors   as make_worker_layout and announce_nccl_fallback.
  [[nodiscard]] std::span<const ScheduledPack> packs(ReduceOp op,
                                                     std::span<const WorkerBatchItem> items,
                                                     Int64 bytes_per_pack);

 private:
  /// MIN and MAX of floats can take other plans than SUM, MEAN and PROD; nothing else of the op matters.
  enum class OpKind : std::uint8_t { COMBINES, SELECTS };
  struct Known {
    OpKind kind = OpKind::COMBINES;
    Int64 bytes_per_pack = 0;
    std::vector<WorkerBatchItem> items;
    std::vector<ScheduledPack> packs;
  };
  [[nodiscard]] std::vector<ScheduledPack> make_packs_of(ReduceOp op,
                                                         std::span<const WorkerBatchItem> items,
                                                         Int64 bytes_per_pack) const;

  Workers workers_;
  std::vector<std::unique_ptr<Known>> known_;
  std::size_t next_replaced_ = 0;
};

}  // namespace crossdevice::detail
