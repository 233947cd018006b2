// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/multi_worker_all_reduce.h"

#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/export.h"
#include "crossdevice/core/log.h"
#include "crossdevice/device/device_spec.h"
#include "crossdevice/device/scratch_lease.h"

#include "ops/detail/active_operation.h"
#include "ops/detail/batch_results.h"
#include "ops/detail/component_reduce.h"
#include "ops/detail/host_reduce.h"
#include "ops/detail/nccl_engines.h"
#include "ops/detail/nccl_then_hosts.h"
#include "ops/detail/staged_reduce.h"
#include "ops/detail/worker_batch_plans.h"

namespace crossdevice {
namespace {

void require_not_negative(const char* name, std::int64_t value) {
  if (value < 0) throw ValueError(fmt::format("{} must be 0 or more, not {}", name, value));
}

void require_workers(const Devices& workers) {
  if (workers.empty()) {
    throw ValueError(
        "worker_devices: expected at least one worker like /job:worker/task:0, got an empty list");
  }
  for (const Device& worker : workers) {
    if (!worker.is_host() || worker.index() != 0) {
      throw ValueError(
          fmt::format("worker_devices: expected workers like /job:worker/task:0, not the device {}",
                      worker.name()));
    }
  }
  if (workers.has_duplicates()) {
    throw ValueError(
        fmt::format("worker_devices: a worker stands in it twice: {}", workers.to_string()));
  }
}

/// Also checks what it is given.
detail::WorkerBatchPlans::Workers make_workers(const Devices& worker_devices,
                                               int num_gpus_per_worker,
                                               const MultiWorkerAllReduceOptions& options) {
  require_workers(worker_devices);
  require_not_negative("num_gpus_per_worker", num_gpus_per_worker);
  require_not_negative("agg_small_grads_max_bytes", options.agg_small_grads_max_bytes.value());
  require_not_negative("agg_small_grads_max_group", options.agg_small_grads_max_group);
  return {.devices = worker_devices,
          .num_gpus_per_worker = num_gpus_per_worker,
          .spec = options.all_reduce_spec,
          .packing = {.num_packs = options.num_packs,
                      .agg_small_grads_max_bytes = options.agg_small_grads_max_bytes,
                      .agg_small_grads_max_group = options.agg_small_grads_max_group}};
}

/// Whether an algorithm of all_reduce_spec reduces this value. The others are sparse, go to other devices than those they lie on, or must not depend on an
/// algorithm.
bool is_scheduled(const PerReplica& value, const Destinations& destinations,
                  const CommunicationOptions& options) {
  return !options.is_deterministic() && !value.is_sparse() &&
         value.devices().same_set(destinations.devices());
}

/// The values of a batch that algorithms reduce.
struct ScheduledItems {
  std::vector<detail::ReduceItem> items;
  std::vector<detail::WorkerBatchItem> kinds;
  std::vector<NcclReducer*> reducers;             // of the parts, one part's after the other's
  std::vector<std::size_t> num_reducers;          // by part
  std::vector<detail::ReduceItem> items_of_part;  // of the one under way

  void add(const PerReplica& value, const Mirrored& result, std::size_t item) {
    items.push_back({&value, &result, item});
    kinds.push_back({value.devices(), {value.dtype(), value.values()[0].num_elements()}});
  }
  void clear() {
    items.clear();
    kinds.clear();
    reducers.clear();
    num_reducers.clear();
    items_of_part.clear();
  }
  [[nodiscard]] std::span<const detail::ReduceItem> of(const detail::WorkerBatchPart& part) {
    if (part.items.size() == items.size()) return items;
    items_of_part.clear();
    for (const std::size_t i : part.items) items_of_part.push_back(items[i]);
    return items_of_part;
  }
};

/// Whether the host waits for GPUs.
bool is_waited_for(detail::WorkerEngine engine) {
  switch (engine) {
    case detail::WorkerEngine::HOSTS:
    case detail::WorkerEngine::NCCL:
      return false;
    case detail::WorkerEngine::STAGED:
    case detail::WorkerEngine::NCCL_THEN_HOSTS:
      return true;
  }
  return true;
}

/// `reducers`: what find_reducers() found.
void reduce_part(ReduceOp op, const detail::WorkerBatchPart& part,
                 std::span<const detail::ReduceItem> items, std::span<NcclReducer* const> reducers,
                 Int64 bytes_per_pack, detail::ActiveOperation& active) {
  switch (part.engine) {
    case detail::WorkerEngine::HOSTS:
      detail::host_scheduled_reduce(op, items, part.scheduled, active);
      return;
    case detail::WorkerEngine::STAGED:
      detail::staged_scheduled_reduce(op, items, part.scheduled, active);
      return;
    case detail::WorkerEngine::NCCL:
      detail::reduce_batch(op, {},
                           {.items = items,
                            .packs = part.packs,
                            .bytes_per_pack = static_cast<std::size_t>(bytes_per_pack.value()),
                            .placement = detail::Placement::GPUS,
                            .nccl = reducers[0]},
                           active);
      return;
    case detail::WorkerEngine::NCCL_THEN_HOSTS:
      if (reducers.empty()) {
        detail::staged_scheduled_reduce(op, items, part.scheduled, active);
        return;
      }
      detail::nccl_then_hosts_reduce(
          {.op = op,
           .part = part,
           .items = items,
           .reducers = reducers,
           .bytes_per_pack = static_cast<std::size_t>(bytes_per_pack.value())},
          active);
      return;
  }
}

}  // namespace

struct CROSSDEVICE_HIDDEN MultiWorkerAllReduce::State {
  detail::WorkerBatchPlans plans;
  detail::NcclEngines nccl{"MultiWorkerAllReduce"};
  detail::NcclEngines within_workers{"MultiWorkerAllReduce", "the host reduces"};

  void reduce(ReduceOp op, ScheduledItems& scheduled, Int64 bytes_per_pack,
              detail::ActiveOperation& active);
  void find_reducers(ReduceOp op, const detail::WorkerBatchPart& part, ScheduledItems& scheduled);
  bool find_within_workers(ReduceOp op, const detail::WorkerBatchPart& part,
                           ScheduledItems& scheduled);
};

/// Adds what NCCL reduces a part by: for one level one reducer, null where our kernels do it; for two levels one for each worker, or none where the host does
/// both. Throws whatever is against it.
void MultiWorkerAllReduce::State::find_reducers(ReduceOp op, const detail::WorkerBatchPart& part,
                                                ScheduledItems& scheduled) {
  std::vector<NcclReducer*>& reducers = scheduled.reducers;
  const std::size_t num_before = reducers.size();
  switch (part.engine) {
    case detail::WorkerEngine::HOSTS:
    case detail::WorkerEngine::STAGED:
      break;
    case detail::WorkerEngine::NCCL:
      reducers.push_back(nccl.serving(op, *scheduled.items[part.items[0]].value));
      break;
    case detail::WorkerEngine::NCCL_THEN_HOSTS:
      if (!find_within_workers(op, part, scheduled)) reducers.resize(num_before);
      break;
  }
  scheduled.num_reducers.push_back(reducers.size() - num_before);
}

/// Null for a worker that has one GPU. False: NCCL does not serve some worker or some dtype, which has been said.
bool MultiWorkerAllReduce::State::find_within_workers(ReduceOp op,
                                                      const detail::WorkerBatchPart& part,
                                                      ScheduledItems& scheduled) {
  for (const detail::WorkerComponents& worker : part.workers) {
    NcclReducer* reducer = nullptr;
    for (std::size_t p = 0; worker.components.size() > 1 && p < part.packs.size(); ++p) {
      if (p > 0 && part.packs[p].dtype == part.packs[p - 1].dtype) continue;
      reducer = within_workers.serving(op, part.packs[p].dtype, worker.devices);
      if (reducer == nullptr) return false;
    }
    scheduled.reducers.push_back(reducer);
  }
  return true;
}

void MultiWorkerAllReduce::State::reduce(ReduceOp op, ScheduledItems& scheduled,
                                         Int64 bytes_per_pack, detail::ActiveOperation& active) {
  const std::span<const detail::WorkerBatchPart> parts =
      plans.parts(op, scheduled.kinds, bytes_per_pack);
  // Whatever is wrong with a part or with where it lies, before anything is written; captures before communicators are made, which a capture does not allow.
  for (const detail::WorkerBatchPart& part : parts) {
    if (!is_waited_for(part.engine)) continue;
    for (const std::size_t i : part.items) detail::require_not_captured(scheduled.items[i]);
  }
  for (const detail::WorkerBatchPart& part : parts) find_reducers(op, part, scheduled);
  std::size_t num_done = 0;
  std::span<NcclReducer* const> reducers = scheduled.reducers;
  try {
    for (const detail::WorkerBatchPart& part : parts) {
      const std::size_t num_reducers = scheduled.num_reducers[num_done];
      reduce_part(op, part, scheduled.of(part), reducers.first(num_reducers), bytes_per_pack,
                  active);
      reducers = reducers.subspan(num_reducers);
      ++num_done;
    }
  } catch (const OpError& error) {
    if (num_done > 0 && active.is_in_place()) throw_with_inputs_changed(error);
    throw;
  }
}

MultiWorkerAllReduce::MultiWorkerAllReduce(const Devices& worker_devices, int num_gpus_per_worker,
                                           const MultiWorkerAllReduceOptions& options)
    : AllReduceCrossDeviceOps(options.num_packs),
      state_(std::make_unique<State>(State{.plans = detail::WorkerBatchPlans(make_workers(
                                               worker_devices, num_gpus_per_worker, options))})) {
  const std::string message = fmt::format(
      "MultiWorkerAllReduce: scheduled, by all_reduce_spec {}; direct where destinations are "
      "other devices or deterministic is set",
      all_reduce_spec().to_string());
  log_once(message, LogSeverity::INFO, message);
}

MultiWorkerAllReduce::~MultiWorkerAllReduce() = default;

const AllReduceSpec& MultiWorkerAllReduce::all_reduce_spec() const {
  return state_->plans.workers().spec;
}

Mirrored MultiWorkerAllReduce::reduce_implementation(ReduceOp op, const PerReplica& value,
                                                     const Destinations& destinations,
                                                     const CommunicationOptions& options) {
  if (!is_scheduled(value, destinations, options)) {
    return AllReduceCrossDeviceOps::reduce_implementation(op, value, destinations, options);
  }
  Mirrored result = destinations.make_result(result_dtype(op, value.dtype()), value.shape(), value);
  const detail::ScratchLease<ScheduledItems> scheduled;
  scheduled->add(value, result, detail::PendingBatchState::kNoItem);
  state_->reduce(op, *scheduled, options.bytes_per_pack, active_operation());
  return result;
}

std::vector<Mirrored> MultiWorkerAllReduce::batch_reduce_implementation(
    ReduceOp op, std::span<const ValueDestinationPair> pairs, const CommunicationOptions& options) {
  if (options.is_deterministic()) {
    return AllReduceCrossDeviceOps::batch_reduce_implementation(op, pairs, options);
  }
  detail::ActiveOperation& active = active_operation();
  std::vector<Mirrored> results = detail::make_results(pairs.size());
  const detail::ScratchLease<ScheduledItems> scheduled;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto& [value, destinations] = pairs[i];
    if (!is_scheduled(value, destinations, options)) continue;
    results[i] = destinations.make_result(result_dtype(op, value.dtype()), value.shape(), value);
    scheduled->add(value, results[i], active.item_of(pairs[i]));
  }
  // Finds values that belong to no worker before anything is written.
  state_->reduce(op, *scheduled, options.bytes_per_pack, active);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (is_scheduled(pairs[i].value, pairs[i].destinations, options)) continue;
    std::vector<Mirrored> one =
        AllReduceCrossDeviceOps::batch_reduce_implementation(op, pairs.subspan(i, 1), options);
    results[i] = std::move(one[0]);
  }
  return results;
}

std::size_t MultiWorkerAllReduce::first_group(std::size_t /*num_replicas*/) const { return 0; }

void MultiWorkerAllReduce::prepare(const PerReplica& /*value*/,
                                   const CommunicationOptions& /*options*/) {}

}  // namespace crossdevice
