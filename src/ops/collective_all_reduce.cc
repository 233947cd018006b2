// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/collective_all_reduce.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/collective/communicator.h"
#include "crossdevice/collective/nccl_reduce.h"
#include "crossdevice/collective/pack.h"
#include "crossdevice/collective/pack_choice.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/fingerprint.h"
#include "crossdevice/core/format_bytes.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/operation_kind.h"
#include "crossdevice/core/own_want.h"
#include "crossdevice/core/trace.h"
#include "crossdevice/device/shutdown.h"

#include "ops/detail/active_operation.h"
#include "ops/detail/batch_results.h"
#include "ops/detail/call_particulars.h"
#include "ops/detail/component_reduce.h"
#include "ops/detail/host_part.h"
#include "ops/detail/known_packs.h"
#include "ops/detail/lone_worker.h"
#include "ops/detail/sparse_reduce.h"
#include "ops/detail/staged_value.h"
#include "ops/detail/streamed_pack.h"
#include "ops/detail/validation.h"
#include "ops/detail/worker_group.h"

namespace crossdevice {
namespace {

/// Where values that lie on GPUs meet those of other workers.
const char* const kHost = "CPU:0";

constexpr std::size_t kTensorsPerSlices = 3;  // values, indices, dense shape

std::size_t num_sparse(std::span<const ValueDestinationPair> pairs) {
  return static_cast<std::size_t>(
      std::count_if(pairs.begin(), pairs.end(),
                    [](const ValueDestinationPair& pair) { return pair.value.is_sparse(); }));
}

/// Another worker's tensor, to be read until its owner's operation ends.
Tensor view_of(const RemoteTensor& tensor, const Device& device) {
  if (tensor.data == nullptr) return Tensor::empty(tensor.dtype, tensor.shape, device);
  return Tensor::view(static_cast<const void*>(tensor.data), tensor.dtype, tensor.shape, device);
}

/// A shape as a tensor, so that it travels like one; no elements where it is not known.
Tensor tensor_of(const MaybeShape& shape, const Device& device) {
  if (!shape.has_value()) return Tensor::empty(DType::INT64, Shape({0}), device);
  return Tensor::copy_of(shape->dims(), Shape({shape->rank()}), device);
}

MaybeShape shape_of(const RemoteTensor& tensor) {
  const auto rank = static_cast<std::size_t>(tensor.shape.num_elements());
  if (rank == 0) return std::nullopt;
  const auto* dims = reinterpret_cast<const std::int64_t*>(tensor.data);
  return Shape(std::span<const std::int64_t>(dims, rank));
}

/// Runs what a worker does with what all have shown. There it waits for nobody: if its deadline passes, it is itself the one that is late.
template <class Use>
void use_in_time(const Cluster& cluster, Use use) {
  try {
    use();
  } catch (const DeadlineExceededError& error) {
    if (!error.culprits().empty()) throw;
    const RankInfo self = cluster.worker(cluster.rank());
    throw DeadlineExceededError(fmt::format("{}; all others had come: this worker, {}, is late",
                                            error.what(), to_string(self)),
                                {.operation = error.operation(),
                                 .culprits = {self},
                                 .inputs_intact = error.inputs_intact()});
  }
}

/// The dense values of a batch that go one way.
struct DenseBatch {
  std::vector<detail::ReduceItem> items;
  std::vector<TensorSize> sizes;  // of the items, in their order

  void add(const PerReplica& value, const Mirrored& result, std::size_t item) {
    items.push_back({&value, &result, item});
    sizes.push_back({value.dtype(), value.values()[0].num_elements()});
  }
};

bool is_on_hosts(const PerReplica& value, const Mirrored& result) {
  return value.devices().all_host() && result.devices().all_host();
}

}  // namespace

struct CROSSDEVICE_HIDDEN CollectiveAllReduce::State {
  Devices devices;
  CommunicationOptions options;
  std::shared_ptr<Cluster> cluster;
  std::optional<detail::LoneWorker> alone;  // without others; else `workers`
  std::optional<Communicator> workers;
  std::unique_ptr<NcclReducer> nccl;  // null: values that lie on GPUs are reduced on hosts
  std::uint64_t num_unknown = 0;   // parts of calls that have begun here, which others may wait for
  detail::KnownPacks known_packs;  // whole tensors; without a limit one pack each dtype
  std::mutex giving_up;
  std::string given_up_because;           // never changed once has_given_up says that it is there
  std::atomic<bool> has_given_up{false};  // released behind it

  /// Equal on all workers for equal calls.
  [[nodiscard]] bool takes_nccl(ReduceOp op, const PerReplica& value,
                                const Destinations& destinations,
                                const CommunicationOptions& call) const {
    if (nccl == nullptr) return false;
    const CommunicationOptions all = options.merge(call);
    return !all.is_deterministic() && all.implementation != CommunicationImplementation::RING &&
           !value.is_sparse() && nccl->can_reduce(op, value.dtype()) &&
           value.devices() == devices && destinations.devices().same_set(devices);
  }

  void require_components(const PerReplica& value) const {
    if (value.devices() == devices) return;
    if (!value.devices().same_set(devices) || value.size() != devices.size()) {
      throw ValueError(
          fmt::format("a value of CollectiveAllReduce has one component on each of {}, "
                      "this one has {} on {}",
                      devices.to_string(), value.size(), value.devices().to_string()));
    }
  }
  /// To be made before anything of the call can fail: so calls that are one worker's alone, as the others do not hear of the failure, make the next
  /// ones differ, and are never taken for those. So do calls that were cancelled before they began, on some workers: with equally many failed parts and
  /// equally many cancelled calls behind them, workers that have made the same calls are in the same one. What all cancel, all count. Calls that succeed
  /// do not count, so that equal ones have equal fingerprints, which a transport need say once only. `num_parts`: each is followed by set_known().
  [[nodiscard]] CollectiveRequest request(std::string_view kind, ReduceOp op,
                                          const CommunicationOptions& call,
                                          const detail::ActiveOperation& active,
                                          std::uint64_t particulars = 0,
                                          std::size_t num_parts = 1) {
    require_going_on();
    Fingerprint fingerprint;
    fingerprint.add(num_unknown, active.num_skipped(), particulars);
    if (const detail::StreamedPack* const pack = active.streamed_pack()) {
      fingerprint.add(pack->bucketer, pack->step, pack->pack);
    }
    num_unknown += num_parts;
    return {.kind = kind,
            .sequence = active.record().sequence,
            .op = op,
            .deadline = active.deadline(),
            .deterministic = options.is_deterministic() || call.is_deterministic(),
            .grouping_independent = options.grouping_independent || call.grouping_independent,
            .fingerprint = fingerprint.value()};
  }
  /// Who has given up shows the others nothing more: they are to hear why, not that its next call is not theirs. The cluster says so here, too, but later.
  void require_going_on() const {
    if (!has_given_up.load(std::memory_order_acquire)) return;
    throw AbortedError("this worker has given up: " + given_up_because,
                       {.operation = {}, .culprits = {cluster->worker(cluster->rank())}});
  }
  /// Of a call, or the rest of it, with the request just made for it.
  [[nodiscard]] detail::HostPart::Call host_call(const CollectiveRequest& request,
                                                 detail::ActiveOperation& active,
                                                 std::size_t num_parts = 1) const {
    return {.nccl = nccl.get(),
            .active = active,
            .request = request,
            .num_unknown = num_unknown,
            .num_unknown_before = num_unknown - num_parts};
  }
  /// Every worker has come to all that a part of a call does together: however it ends here now, all are behind the same parts.
  void set_known() { --num_unknown; }
  /// Nothing where NCCL has its own links, which nobody has measured.
  [[nodiscard]] std::vector<PackCandidate> rank_pack_sizes() {
    if (!workers.has_value() || nccl != nullptr) return {};
    return workers->engine().rank_pack_sizes();
  }
  void reduce_pack(const CollectiveRequest& request, const Pack& pack, bool is_last,
                   const DenseBatch& batch, detail::HostPart& part);
  void reduce_packs(CollectiveRequest request, const DenseBatch& batch, Int64 bytes_per_pack,
                    detail::HostPart& part, bool& has_written);
  void reduce_by_nccl(const CollectiveRequest& request, const DenseBatch& batch,
                      Int64 bytes_per_pack, detail::ActiveOperation& active);
  [[nodiscard]] Mirrored reduce_dense(ReduceOp op, const PerReplica& value,
                                      const Destinations& destinations,
                                      const CommunicationOptions& call,
                                      detail::ActiveOperation& active);
  template <class AllReduce>
  void reduce_staged(const CollectiveRequest& request, const PerReplica& value,
                     const Mirrored& result, detail::ActiveOperation& active,
                     const AllReduce& all_reduce);
  [[nodiscard]] Mirrored reduce_alone(ReduceOp op, const PerReplica& value,
                                      const Destinations& destinations,
                                      const CommunicationOptions& call,
                                      detail::ActiveOperation& active);
  [[nodiscard]] Mirrored reduce_sparse(ReduceOp op, const PerReplica& value,
                                       const Destinations& destinations,
                                       const CommunicationOptions& call,
                                       detail::ActiveOperation& active);
  [[nodiscard]] Mirrored share_slices(const CollectiveRequest& request, const PerReplica& value,
                                      const Destinations& destinations, detail::HostPart& part);
  void reduce_sparse_values(CollectiveRequest request, std::span<const ValueDestinationPair> pairs,
                            std::vector<Mirrored>& results, detail::HostPart& part);
};

CollectiveAllReduce::CollectiveAllReduce(const Devices& devices, int group_size,
                                         const CommunicationOptions& options,
                                         std::shared_ptr<Cluster> cluster)
    : CollectiveAllReduce(devices, group_size, options, std::move(cluster),
                          meeting_deadline(options.timeout_seconds)) {}

CollectiveAllReduce::CollectiveAllReduce(const Devices& devices, int group_size,
                                         const CommunicationOptions& options,
                                         std::shared_ptr<Cluster> cluster,
                                         const Deadline& deadline) try
    : CrossDeviceOps(options.timeout_seconds), state_(std::make_unique<State>()) {
  const bool takes_nccl =
      detail::require_equal_groups(cluster, devices, group_size, options, deadline);
  state_->devices = devices;
  state_->options = options;
  state_->cluster = std::move(cluster);
  if (state_->cluster != nullptr) set_reports_to(*state_->cluster);
  if (state_->cluster == nullptr || state_->cluster->num_workers() == 1) {
    state_->alone.emplace("CollectiveAllReduce");  // says itself what it does on GPUs
    if (!devices.all_host()) return;
    log_once("CollectiveAllReduce alone", LogSeverity::INFO,
             "CollectiveAllReduce: direct, since this worker is alone");
    return;
  }
  set_waits_for_workers(*state_->cluster);
  state_->workers.emplace(state_->cluster, deadline);  // says how its engine reduces
  if (takes_nccl) state_->nccl = detail::make_nccl_reducer(state_->cluster, devices, deadline);
  if (state_->nccl != nullptr && state_->cluster->rank() == 0) {
    log_once("CollectiveAllReduce by NCCL", LogSeverity::INFO,
             "CollectiveAllReduce: nccl where values lie on GPUs, since it serves all workers'");
  }
} catch (...) {
  detail::rethrow_own_want("CollectiveAllReduce");
}

CollectiveAllReduce::~CollectiveAllReduce() = default;

std::string CollectiveAllReduce::explain(std::size_t size_bytes) const {
  if (!state_->workers.has_value()) return "direct reduction by this process; it is alone";
  std::string on_hosts = state_->workers->engine().explain_all_reduce(size_bytes);
  if (state_->nccl == nullptr) return on_hosts;
  return "on GPUs NCCL, by an algorithm of its own choice; what it does not do: " + on_hosts;
}

std::string CollectiveAllReduce::explain_packs() const {
  const std::vector<PackCandidate> candidates = state_->rank_pack_sizes();
  std::string text = "a list that is there as a whole: one pack; gradients as they are ready: ";
  if (candidates.empty()) {
    return text + format_bytes(streaming_pack_bytes()) + " a pack, as no links are known";
  }
  text += fmt::format("{} a pack, {:.1f} us expected, {:.1f} % of it for no bytes (",
                      format_bytes(candidates[0].size_bytes), candidates[0].predicted_seconds * 1e6,
                      candidates[0].overhead * 100);
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    text += fmt::format("{}{} {:.1f} %", i == 1 ? "" : ", ", format_bytes(candidates[i].size_bytes),
                        candidates[i].overhead * 100);
  }
  return text + ")";
}

std::size_t CollectiveAllReduce::streaming_pack_bytes() const {
  const std::vector<PackCandidate> candidates = state_->rank_pack_sizes();
  return candidates.empty() ? CrossDeviceOps::streaming_pack_bytes() : candidates[0].size_bytes;
}

Mirrored CollectiveAllReduce::reduce_implementation(ReduceOp op, const PerReplica& value,
                                                    const Destinations& destinations,
                                                    const CommunicationOptions& options) {
  detail::ActiveOperation& active = active_operation();
  state_->require_components(value);
  // Each returns what it makes: moving it costs the smallest call a tenth of its instructions.
  if (state_->alone.has_value()) {
    return state_->reduce_alone(op, value, destinations, options, active);
  }
  if (!value.is_sparse()) return state_->reduce_dense(op, value, destinations, options, active);
  return state_->reduce_sparse(op, value, destinations, options, active);
}

Mirrored CollectiveAllReduce::State::reduce_alone(ReduceOp op, const PerReplica& value,
                                                  const Destinations& destinations,
                                                  const CommunicationOptions& call,
                                                  detail::ActiveOperation& active) {
  Mirrored result = alone->reduce(op, value, destinations, options.merge(call), active);
  active.set_part_written();
  return result;
}

Mirrored CollectiveAllReduce::State::reduce_sparse(ReduceOp op, const PerReplica& value,
                                                   const Destinations& destinations,
                                                   const CommunicationOptions& call,
                                                   detail::ActiveOperation& active) {
  const CollectiveRequest all = request("reduce sparse", op, call, active);
  Mirrored result;
  detail::HostPart part(host_call(all, active));
  part.run([&] { result = share_slices(all, value, destinations, part); });
  active.set_part_written();
  return result;
}

Mirrored CollectiveAllReduce::State::reduce_dense(ReduceOp op, const PerReplica& value,
                                                  const Destinations& destinations,
                                                  const CommunicationOptions& call,
                                                  detail::ActiveOperation& active) {
  const CollectiveRequest all = request("reduce", op, call, active);
  const Tensor& first = value.values()[0];
  Mirrored result = destinations.make_result(result_dtype(op, first.dtype()), first.shape(), value);
  active.require_time_left();
  active.set_written();
  if (takes_nccl(op, value, destinations, call)) {
    const detail::ReduceItem item{&value, &result, detail::PendingBatchState::kNoItem};
    detail::reduce_batch(op, {},
                         {.items = std::span<const detail::ReduceItem>(&item, 1),
                          .placement = detail::Placement::GPUS,
                          .nccl = nccl.get(),
                          .fingerprint = all.fingerprint},
                         active);
    set_known();
    active.set_part_written();
    return result;
  }
  const auto all_reduce = [&](const PerReplica& inputs, const Mirrored& outputs) {
    const CollectiveValue shared{inputs.values(), outputs.values()};
    workers->engine().all_reduce(all, std::span<const CollectiveValue>(&shared, 1));
    set_known();
  };
  if (is_on_hosts(value, result) && nccl == nullptr) {
    all_reduce(value, result);  // nothing to compare besides, nothing to stage
  } else {
    reduce_staged(all, value, result, active, all_reduce);
  }
  active.set_part_written();
  return result;
}

/// `all_reduce(inputs, outputs)`, on hosts, where others may do it through NCCL, or where values lie on GPUs.
template <class AllReduce>
void CollectiveAllReduce::State::reduce_staged(const CollectiveRequest& request,
                                               const PerReplica& value, const Mirrored& result,
                                               detail::ActiveOperation& active,
                                               const AllReduce& all_reduce) {
  detail::HostPart::Call here = host_call(request, active);
  here.value = std::span<const PerReplica>(&value, 1);
  detail::HostPart part(here);
  part.run([&] {
    if (is_on_hosts(value, result)) {
      part.begin();
      return all_reduce(value, result);
    }
    const detail::StagedValue staged(value, result, kHost, active);
    part.begin();
    all_reduce(staged.inputs(), staged.outputs());
    staged.put_back(result, active);
  });
}

std::vector<Mirrored> CollectiveAllReduce::batch_reduce_implementation(
    ReduceOp op, std::span<const ValueDestinationPair> pairs, const CommunicationOptions& options) {
  detail::ActiveOperation& active = active_operation();
  for (const ValueDestinationPair& pair : pairs) state_->require_components(pair.value);
  if (state_->alone.has_value()) {
    std::vector<Mirrored> results =
        state_->alone->batch_reduce(op, pairs, state_->options.merge(options), active);
    if (!pairs.empty()) active.set_part_written();
    return results;
  }
  const Int64 bytes_per_pack = state_->options.merge(options).bytes_per_pack;
  // What a bucketer's pack is called differs from pack to pack, so that where different ones meet the error names them.
  const detail::StreamedPack* const streamed = active.streamed_pack();
  std::optional<detail::KindText> name;
  if (streamed != nullptr) name = name_of(*streamed);
  // The dense values are one part, each sparse one is another.
  const std::size_t num_parts = 1 + num_sparse(pairs);
  const detail::BatchParticulars particulars(pairs, bytes_per_pack);
  CollectiveRequest whole =
      state_->request(name.has_value() ? name->view() : detail::kBatchReduce.name, op, options,
                      active, particulars.fingerprint(), num_parts);
  whole.particulars = &particulars;
  std::vector<Mirrored> results = detail::make_results(pairs.size());
  DenseBatch on_engine;
  DenseBatch by_nccl;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto& [value, destinations] = pairs[i];
    if (value.is_sparse()) continue;
    results[i] = destinations.make_result(result_dtype(op, value.dtype()), value.shape(), value);
    (state_->takes_nccl(op, value, destinations, options) ? by_nccl : on_engine)
        .add(value, results[i], active.item_of(pairs[i]));
  }
  active.set_written();
  bool has_written = false;
  try {
    if (!by_nccl.items.empty()) {
      state_->reduce_by_nccl(whole, by_nccl, bytes_per_pack, active);
      has_written = true;
    }
    detail::HostPart::Call here = state_->host_call(whole, active, num_parts);
    here.batch = pairs;
    here.is_compared = has_written;
    detail::HostPart part(here);
    part.run([&] {
      state_->reduce_packs(whole, on_engine, bytes_per_pack, part, has_written);
      state_->reduce_sparse_values(whole, pairs, results, part);
    });
  } catch (const OpError& error) {
    if (has_written && active.is_in_place()) throw_with_inputs_changed(error);
    throw;
  }
  if (!pairs.empty()) active.set_part_written();
  return results;
}

/// All of it is enqueued, or nothing counts.
void CollectiveAllReduce::State::reduce_by_nccl(const CollectiveRequest& request,
                                                const DenseBatch& batch, Int64 bytes_per_pack,
                                                detail::ActiveOperation& active) {
  detail::reduce_batch(request.op, {},
                       {.items = batch.items,
                        .packs = known_packs.packs(batch.sizes, bytes_per_pack),
                        .bytes_per_pack = static_cast<std::size_t>(bytes_per_pack.value()),
                        .placement = detail::Placement::GPUS,
                        .nccl = nccl.get(),
                        .fingerprint = request.fingerprint,
                        .kind = request.kind},
                       active);
}

/// Through the workers' engine. `has_written` is set behind the first pack.
void CollectiveAllReduce::State::reduce_packs(CollectiveRequest request, const DenseBatch& batch,
                                              Int64 bytes_per_pack, detail::HostPart& part,
                                              bool& has_written) {
  const std::span<const Pack> packs = known_packs.packs(batch.sizes, bytes_per_pack);
  if (packs.empty()) {
    if (!batch.items.empty()) part.begin();  // of empty values
    set_known();
  }
  for (const Pack& pack : packs) {
    reduce_pack(request, pack, &pack == &packs.back(), batch, part);
    has_written = true;
    ++request.fingerprint;  // the next pack is not this one
  }
}

/// The sparse ones of a batch, each an operation of its own.
void CollectiveAllReduce::State::reduce_sparse_values(CollectiveRequest request,
                                                      std::span<const ValueDestinationPair> pairs,
                                                      std::vector<Mirrored>& results,
                                                      detail::HostPart& part) {
  const std::uint64_t batch = request.fingerprint;
  request.kind = "reduce sparse";
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto& [value, destinations] = pairs[i];
    if (!value.is_sparse()) continue;
    Fingerprint fingerprint;
    fingerprint.add(batch, i);
    request.fingerprint = fingerprint.value();
    results[i] = share_slices(request, value, destinations, part);
    part.active().complete_item(part.active().item_of(pairs[i]), results[i]);
  }
}

/// Through the workers' engine; copies of no more than one pack's values exist at a time.
void CollectiveAllReduce::State::reduce_pack(const CollectiveRequest& request, const Pack& pack,
                                             bool is_last, const DenseBatch& batch,
                                             detail::HostPart& part) {
  const TraceSpan span("pack of values", "pack", [&pack] {
    return TraceArguments{.num_bytes = pack.num_elements() * size_in_bytes(pack.dtype),
                          .dtype = to_string(pack.dtype)};
  });
  part.active().require_time_left();
  std::vector<CollectiveValue> shared;
  std::vector<std::optional<detail::StagedValue>> staged;  // by range; empty: all lies on hosts
  shared.reserve(pack.ranges.size());
  for (std::size_t r = 0; r < pack.ranges.size(); ++r) {
    const detail::ReduceItem& item = batch.items[pack.ranges[r].tensor];
    if (is_on_hosts(*item.value, *item.result)) {
      shared.push_back({item.value->values(), item.result->values()});
      continue;
    }
    if (staged.empty()) staged.resize(pack.ranges.size());
    staged[r].emplace(*item.value, *item.result, kHost, part.active());
    shared.push_back({staged[r]->inputs().values(), staged[r]->outputs().values()});
  }
  part.begin();
  workers->engine().all_reduce(request, shared);
  if (is_last) set_known();
  for (std::size_t r = 0; r < pack.ranges.size(); ++r) {
    const detail::ReduceItem& item = batch.items[pack.ranges[r].tensor];
    if (!staged.empty() && staged[r].has_value()) {
      staged[r]->put_back(*item.result, part.active());
    }
    part.active().complete_item(item.item);
  }
}

/// Everybody's slices, reduced here.
Mirrored CollectiveAllReduce::State::share_slices(const CollectiveRequest& request,
                                                  const PerReplica& value,
                                                  const Destinations& destinations,
                                                  detail::HostPart& part) {
  const Device target =
      destinations.devices()[0].is_host() ? destinations.devices()[0] : Device(kHost);
  const PerReplica shown = detail::on_hosts(value, part.active());
  std::vector<Tensor> tensors;
  tensors.reserve(kTensorsPerSlices * value.size());
  for (const IndexedSlices& slices : shown.slices()) {
    tensors.push_back(slices.values);
    tensors.push_back(slices.indices);
    tensors.push_back(tensor_of(slices.dense_shape, slices.values.device()));
  }
  Mirrored result;
  part.begin();
  workers->engine().share(request, tensors, [&](const RemoteTensors& all) {
    set_known();
    std::vector<IndexedSlices> everybodys;
    for (const std::vector<RemoteTensor>& theirs : all) {
      for (std::size_t i = 0; i + 2 < theirs.size(); i += kTensorsPerSlices) {
        everybodys.push_back(
            {view_of(theirs[i], target), view_of(theirs[i + 1], target), shape_of(theirs[i + 2])});
      }
    }
    require_concatenable(everybodys);
    use_in_time(*cluster, [&] {
      result = detail::sparse_reduce(request.op, PerReplica(std::move(everybodys)), target,
                                     destinations, part.active());
    });
  });
  return result;
}

Mirrored CollectiveAllReduce::gather_implementation(const PerReplica& value,
                                                    const Destinations& destinations, int axis,
                                                    const CommunicationOptions& options) {
  if (!state_->workers.has_value()) {
    return CrossDeviceOps::gather_implementation(value, destinations, axis, options);
  }
  detail::ActiveOperation& active = active_operation();
  state_->require_components(value);
  Mirrored result;
  const detail::AxisParticulars particulars(axis);
  CollectiveRequest request =
      state_->request("gather", ReduceOp::SUM, options, active, static_cast<std::uint64_t>(axis));
  request.particulars = &particulars;
  detail::HostPart part(state_->host_call(request, active));
  part.run([&] {
    const PerReplica shown = detail::on_hosts(value, active);
    part.begin();
    state_->workers->engine().share(request, shown.values(), [&](const RemoteTensors& all) {
      state_->set_known();
      std::vector<Tensor> everybodys;
      for (const std::vector<RemoteTensor>& theirs : all) {
        for (const RemoteTensor& tensor : theirs) everybodys.push_back(view_of(tensor, kHost));
      }
      const PerReplica parts(everybodys);
      const Shape shape = detail::require_gatherable(parts, destinations, axis);
      result = destinations.make_result(parts.dtype(), shape, value);
      use_in_time(*state_->cluster, [&] {
        detail::gather_components(parts, static_cast<std::size_t>(axis), result, active);
      });
    });
  });
  active.set_part_written();
  return result;
}

bool CollectiveAllReduce::gathers_from_other_workers() const { return state_->workers.has_value(); }

void CollectiveAllReduce::give_up_for_all(const std::string& text) {
  // The child of a fork shares the connection and must not speak on it.
  if (!state_->workers.has_value() || detail::is_forked_child()) return;
  const std::lock_guard lock(state_->giving_up);
  if (state_->has_given_up.load(std::memory_order_relaxed)) return;
  state_->given_up_because = text;
  state_->has_given_up.store(true, std::memory_order_release);
  state_->cluster->abort_collective_ops(text);
}

}  // namespace crossdevice
