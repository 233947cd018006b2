// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/worker_batch_plans.h"

#include <algorithm>
#include <utility>

#include "ops/detail/nccl_fallback.h"

namespace crossdevice::detail {
namespace {

// More kinds of batches than a training program has: its gradients, the packs of a bucketer, a few metrics.
constexpr std::size_t kMaxKnown = 64;

/// The items of a batch that are packed and reduced alike.
struct Alike {
  std::size_t algorithm = 0;  // index in the spec
  Devices devices;
  std::vector<std::size_t> items;
};

/// In the order of the spec's algorithms, then of first appearance.
std::vector<Alike> group_alike(const AllReduceSpec& spec, std::span<const WorkerBatchItem> items) {
  std::vector<Alike> groups;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::size_t algorithm = spec.index_for(items[i].size.size_bytes());
    const auto is_alike = [&](const Alike& group) {
      return group.algorithm == algorithm && group.devices == items[i].devices;
    };
    auto group = std::ranges::find_if(groups, is_alike);
    if (group == groups.end()) {
      groups.push_back({.algorithm = algorithm, .devices = items[i].devices, .items = {}});
      group = groups.end() - 1;
    }
    group->items.push_back(i);
  }
  std::ranges::stable_sort(groups, {}, &Alike::algorithm);
  return groups;
}

/// The packs of some items of a batch, in terms of the batch.
std::vector<Pack> pack_items(std::span<const WorkerBatchItem> items,
                             std::span<const std::size_t> chosen, const PackingOptions& packing) {
  std::vector<TensorSize> sizes;
  sizes.reserve(chosen.size());
  for (const std::size_t i : chosen) sizes.push_back(items[i].size);
  std::vector<Pack> packs = make_packs(sizes, packing);
  for (Pack& pack : packs) {
    for (ElementRange& range : pack.ranges) range.tensor = chosen[range.tensor];
  }
  return packs;
}

}  // namespace

Order order_of_combining(ReduceOp op, DType dtype) {
  const bool selects = op == ReduceOp::MIN || op == ReduceOp::MAX;
  const bool exact = is_integer(dtype) || dtype == DType::BOOL;
  return selects || exact ? Order::DOES_NOT_COUNT : Order::COUNTS;
}

std::span<const ScheduledPack> WorkerBatchPlans::packs(ReduceOp op,
                                                       std::span<const WorkerBatchItem> items,
                                                       Int64 bytes_per_pack) {
  const OpKind kind =
      op == ReduceOp::MIN || op == ReduceOp::MAX ? OpKind::SELECTS : OpKind::COMBINES;
  for (const std::unique_ptr<Known>& known : known_) {
    if (known->kind == kind && known->bytes_per_pack == bytes_per_pack &&
        std::ranges::equal(known->items, items)) {
      return known->packs;
    }
  }
  auto made = std::make_unique<Known>();
  made->kind = kind;
  made->bytes_per_pack = bytes_per_pack;
  made->items.assign(items.begin(), items.end());
  made->packs = make_packs_of(op, items, bytes_per_pack);
  if (known_.size() < kMaxKnown) {
    known_.push_back(std::move(made));
    return known_.back()->packs;
  }
  std::unique_ptr<Known>& replaced = known_[next_replaced_];
  next_replaced_ = (next_replaced_ + 1) % kMaxKnown;
  replaced = std::move(made);
  return replaced->packs;
}

std::vector<ScheduledPack> WorkerBatchPlans::make_packs_of(ReduceOp op,
                                                           std::span<const WorkerBatchItem> items,
                                                           Int64 bytes_per_pack) const {
  PackingOptions packing = workers_.packing;
  if (bytes_per_pack != 0) packing = {.bytes_per_pack = bytes_per_pack};
  std::vector<ScheduledPack> scheduled;
  for (const Alike& group : group_alike(workers_.spec, items)) {
    const AllReduceSpecTuple& algorithm = workers_.spec.tuples()[group.algorithm];
    const WorkerLayout layout = make_worker_layout(workers_.devices, group.devices);
    if (algorithm.algorithm.starts_with("nccl")) {
      announce_nccl_fallback("MultiWorkerAllReduce", group.devices);
    }
    for (Pack& pack : pack_items(items, group.items, packing)) {
      const std::size_t num_elements = pack.num_elements();
      // Who owns what makes no difference within one process; the turn is the pack's place among all, whatever its algorithm.
      ReductionPlan plan =
          order_of_combining(op, pack.dtype) == Order::DOES_NOT_COUNT
              ? plan_direct_reduction(layout.num_components, num_elements)
              : plan_reduction(make_worker_schedule(
                                   layout, {.algorithm = algorithm,
                                            .num_gpus_per_worker = workers_.num_gpus_per_worker,
                                            .num_elements = num_elements,
                                            .turn = scheduled.size()}),
                               pack.dtype);
      scheduled.push_back(
          {std::move(pack), std::make_shared<const ReductionPlan>(std::move(plan))});
    }
  }
  return scheduled;
}

}  // namespace crossdevice::detail
