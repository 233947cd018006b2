// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/worker_batch_plans.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/core/log.h"

#include "ops/detail/component_reduce.h"
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

WorkerEngine engine_of(std::string_view algorithm, const Devices& devices,
                       const WorkerLayout& layout) {
  if (devices.all_host()) return WorkerEngine::HOSTS;
  if (placement_of(devices, devices) != Placement::GPUS) return WorkerEngine::STAGED;
  if (!algorithm.starts_with("nccl")) return WorkerEngine::STAGED;
  // What has one level, or needs no second one.
  if (algorithm == "nccl" || layout.workers.size() == 1) return WorkerEngine::NCCL;
  const bool has_first_level =
      std::ranges::any_of(layout.workers, [](const auto& worker) { return worker.size() > 1; });
  return has_first_level ? WorkerEngine::NCCL_THEN_HOSTS : WorkerEngine::STAGED;
}

/// What is to be known of an algorithm in which hosts have a part: that they stand in for NCCL, or that copies are made for them.
void announce_hosts(std::string_view algorithm, WorkerEngine engine, const Devices& devices) {
  const bool on_gpus = placement_of(devices, devices) == Placement::GPUS;
  if (algorithm.starts_with("nccl") && !on_gpus) {
    announce_nccl_fallback("MultiWorkerAllReduce", devices, reason_against_nccl(devices),
                           "the host reduces");
  }
  if (devices.all_host()) return;
  const std::string message =
      fmt::format("MultiWorkerAllReduce over {}: {} {}by the host, through pinned memory",
                  devices.to_string(), algorithm,
                  engine == WorkerEngine::NCCL_THEN_HOSTS
                      ? "by NCCL within each worker, where it can, and then "
                      : "");
  log_once(message, LogSeverity::INFO, message);
}

Pack& pack_in(Pack& pack) { return pack; }
Pack& pack_in(ScheduledPack& scheduled) { return scheduled.pack; }

/// Takes packs whose ranges refer to a batch: adds their values to `items`, and lets the ranges refer to places there.
template <class AnyPack>
void refer_to_items(std::vector<AnyPack>& packs, std::vector<std::size_t>& items) {
  for (AnyPack& each : packs) {
    for (const ElementRange& range : pack_in(each).ranges) items.push_back(range.tensor);
  }
  std::ranges::sort(items);
  items.erase(std::unique(items.begin(), items.end()), items.end());
  for (AnyPack& each : packs) {
    for (ElementRange& range : pack_in(each).ranges) {
      const auto place = std::ranges::lower_bound(items, range.tensor);
      range.tensor = static_cast<std::size_t>(place - items.begin());
    }
  }
}

/// One part per dtype, in the order in which they appear.
void add_nccl_parts(std::vector<Pack> packs, std::vector<WorkerBatchPart>& parts) {
  const std::size_t first = parts.size();
  for (Pack& pack : packs) {
    const auto is_alike = [&](const WorkerBatchPart& part) {
      return part.packs[0].dtype == pack.dtype;
    };
    auto part =
        std::find_if(parts.begin() + static_cast<std::ptrdiff_t>(first), parts.end(), is_alike);
    if (part == parts.end()) {
      part = parts.insert(parts.end(), WorkerBatchPart{.engine = WorkerEngine::NCCL});
    }
    part->packs.push_back(std::move(pack));
  }
  for (std::size_t i = first; i < parts.size(); ++i) refer_to_items(parts[i].packs, parts[i].items);
}

/// As few packs to a part as have no value in common with the packs of others; they keep their order.
void add_staged_parts(WorkerEngine engine, std::vector<ScheduledPack> packs, std::size_t num_items,
                      std::vector<WorkerBatchPart>& parts) {
  std::vector<std::size_t> last_pack(num_items);
  for (std::size_t i = 0; i < packs.size(); ++i) {
    for (const ElementRange& range : packs[i].pack.ranges) last_pack[range.tensor] = i;
  }
  std::size_t last = 0;  // pack of the part under way
  WorkerBatchPart part{.engine = engine};
  for (std::size_t i = 0; i < packs.size(); ++i) {
    last = std::max(last, i);
    for (const ElementRange& range : packs[i].pack.ranges) {
      last = std::max(last, last_pack[range.tensor]);
    }
    part.scheduled.push_back(std::move(packs[i]));
    if (i < last) continue;
    refer_to_items(part.scheduled, part.items);
    // Packs without elements have nothing to be staged.
    if (!part.items.empty()) parts.push_back(std::move(part));
    part = {.engine = engine};
  }
}

/// What the schedules of one batch are made from.
class PackScheduler {
 public:
  PackScheduler(ReduceOp op, const WorkerBatchPlans::Workers& workers)
      : op_(op), workers_(workers) {}

  /// Packs of values on the devices of `layout`.
  [[nodiscard]] std::vector<ScheduledPack> schedule(std::vector<Pack> packs,
                                                    const AllReduceSpecTuple& algorithm,
                                                    const WorkerLayout& layout) {
    std::vector<ScheduledPack> scheduled;
    scheduled.reserve(packs.size());
    for (Pack& pack : packs) {
      auto plan = std::make_shared<const ReductionPlan>(plan_for(pack, algorithm, layout));
      scheduled.push_back({std::move(pack), std::move(plan)});
    }
    return scheduled;
  }

  /// A part in which NCCL has the first level: what it and the hosts do then, beside what hosts do where it cannot.
  void add_levels(WorkerBatchPart& part, const AllReduceSpecTuple& algorithm,
                  const WorkerLayout& layout, const Devices& devices) const {
    for (const ScheduledPack& whole : part.scheduled) {
      part.packs.push_back(whole.pack);
      part.upper.push_back({whole.pack, std::make_shared<const ReductionPlan>(
                                            upper_plan_for(whole.pack, algorithm, layout))});
    }
    for (const std::vector<std::size_t>& components : layout.workers) {
      std::vector<Device> own;
      own.reserve(components.size());
      for (const std::size_t i : components) own.push_back(devices[i]);
      part.workers.push_back({components, Devices(std::span<const Device>(own))});
    }
  }

 private:
  /// Who owns what makes no difference within one process; the turn is the pack's place among all that hosts reduce, whatever its algorithm.
  [[nodiscard]] ReductionPlan plan_for(const Pack& pack, const AllReduceSpecTuple& algorithm,
                                       const WorkerLayout& layout) {
    const std::size_t num_elements = pack.num_elements();
    const std::size_t turn = turn_++;
    if (order_of_combining(op_, pack.dtype) == Order::DOES_NOT_COUNT) {
      return plan_direct_reduction(layout.num_components, num_elements);
    }
    return plan_reduction(
        make_worker_schedule(layout, {.algorithm = algorithm,
                                      .num_gpus_per_worker = workers_.num_gpus_per_worker,
                                      .num_elements = num_elements,
                                      .turn = turn}),
        pack.dtype);
  }

  /// Among the workers.
  [[nodiscard]] ReductionPlan upper_plan_for(const Pack& pack, const AllReduceSpecTuple& algorithm,
                                             const WorkerLayout& layout) const {
    const std::size_t num_elements = pack.num_elements();
    if (order_of_combining(op_, pack.dtype) == Order::DOES_NOT_COUNT) {
      return plan_direct_reduction(layout.workers.size(), num_elements);
    }
    return plan_reduction(
        make_upper_schedule(layout, {.algorithm = algorithm, .num_elements = num_elements}),
        pack.dtype);
  }

  ReduceOp op_;
  const WorkerBatchPlans::Workers& workers_;
  std::size_t turn_ = 0;
};

}  // namespace

Order order_of_combining(ReduceOp op, DType dtype) {
  const bool selects = op == ReduceOp::MIN || op == ReduceOp::MAX;
  const bool exact = is_integer(dtype) || dtype == DType::BOOL;
  return selects || exact ? Order::DOES_NOT_COUNT : Order::COUNTS;
}

std::span<const WorkerBatchPart> WorkerBatchPlans::parts(ReduceOp op,
                                                         std::span<const WorkerBatchItem> items,
                                                         Int64 bytes_per_pack) {
  const OpKind kind =
      op == ReduceOp::MIN || op == ReduceOp::MAX ? OpKind::SELECTS : OpKind::COMBINES;
  for (const std::unique_ptr<Known>& known : known_) {
    if (known->kind == kind && known->bytes_per_pack == bytes_per_pack &&
        std::ranges::equal(known->items, items)) {
      return known->parts;
    }
  }
  auto made = std::make_unique<Known>();
  made->kind = kind;
  made->bytes_per_pack = bytes_per_pack;
  made->items.assign(items.begin(), items.end());
  made->parts = make_parts(op, items, bytes_per_pack);
  if (known_.size() < kMaxKnown) {
    known_.push_back(std::move(made));
    return known_.back()->parts;
  }
  std::unique_ptr<Known>& replaced = known_[next_replaced_];
  next_replaced_ = (next_replaced_ + 1) % kMaxKnown;
  replaced = std::move(made);
  return replaced->parts;
}

std::vector<WorkerBatchPart> WorkerBatchPlans::make_parts(ReduceOp op,
                                                          std::span<const WorkerBatchItem> items,
                                                          Int64 bytes_per_pack) const {
  PackingOptions packing = workers_.packing;
  if (bytes_per_pack != 0) packing = {.bytes_per_pack = bytes_per_pack};
  PackScheduler scheduler(op, workers_);
  std::vector<WorkerBatchPart> parts;  // NCCL's
  std::vector<WorkerBatchPart> staged;
  WorkerBatchPart hosts;  // one, so that all threads have all of its packs
  for (const Alike& group : group_alike(workers_.spec, items)) {
    const AllReduceSpecTuple& algorithm = workers_.spec.tuples()[group.algorithm];
    const WorkerLayout layout = make_worker_layout(workers_.devices, group.devices);
    std::vector<Pack> packs = pack_items(items, group.items, packing);
    const WorkerEngine engine = engine_of(algorithm.algorithm, group.devices, layout);
    if (engine == WorkerEngine::NCCL) {
      add_nccl_parts(std::move(packs), parts);
      continue;
    }
    announce_hosts(algorithm.algorithm, engine, group.devices);
    std::vector<ScheduledPack> scheduled = scheduler.schedule(std::move(packs), algorithm, layout);
    if (engine == WorkerEngine::HOSTS) {
      std::ranges::move(scheduled, std::back_inserter(hosts.scheduled));
      continue;
    }
    const std::size_t first = staged.size();
    add_staged_parts(engine, std::move(scheduled), items.size(), staged);
    if (engine != WorkerEngine::NCCL_THEN_HOSTS) continue;
    for (std::size_t i = first; i < staged.size(); ++i) {
      scheduler.add_levels(staged[i], algorithm, layout, group.devices);
    }
  }
  refer_to_items(hosts.scheduled, hosts.items);
  if (!hosts.items.empty()) parts.push_back(std::move(hosts));
  std::ranges::move(staged, std::back_inserter(parts));
  return parts;
}

}  // namespace crossdevice::detail
