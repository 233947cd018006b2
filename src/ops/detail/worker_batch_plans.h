// SPDX-License-Identifier: Apache-2.0
/// From the sizes and devices of a batch to its packs, what each does and where: worked out once per kind of batch.
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

/// Where a part of a batch is reduced.
enum class WorkerEngine : std::uint8_t {
  HOSTS,   ///< where it lies, by schedules
  STAGED,  ///< by schedules on copies on hosts, as some of it lies on GPUs
  NCCL,    ///< on GPUs, by NCCL or what stands in for it
  NCCL_THEN_HOSTS,  ///< within each worker by NCCL, among them by schedules on hosts; where NCCL cannot, as STAGED
};

/// One worker's part of a value.
struct WorkerComponents {
  std::vector<std::size_t> components;  ///< in value order, one at least
  Devices devices;                      ///< theirs
};

/// What is reduced together.
///
/// Invariant  every value of a batch is in one part, whole. Parts for NCCL have one list of devices and one dtype, and come first: what is enqueued for the GPUs
///            runs beside what hosts do, though what is staged waits for it where it lies on the same streams. Of what is staged, in part or whole, values are
///            together only where packs share them, so that few copies exist at a time, and have one list of devices.
struct WorkerBatchPart {
  WorkerEngine engine = WorkerEngine::HOSTS;
  std::vector<std::size_t> items{};  ///< of the batch, ascending
  // Ranges refer to places in `items`.
  std::vector<ScheduledPack> scheduled{};   ///< of hosts that reduce all components
  std::vector<Pack> packs{};                ///< NCCL's
  std::vector<ScheduledPack> upper{};       ///< NCCL_THEN_HOSTS: `packs` among `workers`
  std::vector<WorkerComponents> workers{};  ///< NCCL_THEN_HOSTS
};

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

  /// The parts of a batch. Valid until the next call. Allocates nothing for a kind of batch that it knows.
  ///
  /// Errors   as make_worker_layout, and as announce_nccl_fallback where hosts reduce because of where components lie.
  [[nodiscard]] std::span<const WorkerBatchPart> parts(ReduceOp op,
                                                       std::span<const WorkerBatchItem> items,
                                                       Int64 bytes_per_pack);

 private:
  /// MIN and MAX of floats can take other plans than SUM, MEAN and PROD; nothing else of the op matters.
  enum class OpKind : std::uint8_t { COMBINES, SELECTS };
  struct Known {
    OpKind kind = OpKind::COMBINES;
    Int64 bytes_per_pack = 0;
    std::vector<WorkerBatchItem> items;
    std::vector<WorkerBatchPart> parts;
  };
  [[nodiscard]] std::vector<WorkerBatchPart> make_parts(ReduceOp op,
                                                        std::span<const WorkerBatchItem> items,
                                                        Int64 bytes_per_pack) const;

  Workers workers_;
  std::vector<std::unique_ptr<Known>> known_;
  std::size_t next_replaced_ = 0;
};

}  // namespace crossdevice::detail
