// SPDX-License-Identifier: Apache-2.0
// Chooses the ops by a value's number of components, and tells the other workers what they must know.
#include "strategy/detail/multi_worker_extended.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "crossdevice/core/error.h"
#include "crossdevice/core/exception_text.h"
#include "crossdevice/device/copy.h"
#include "crossdevice/device/shutdown.h"
#include "crossdevice/ops/collective_all_reduce.h"

#include "strategy/detail/replica_call.h"

namespace crossdevice::detail {

namespace {

PerReplica copied_to(const PerReplica& value, const Devices& devices) {
  if (value.is_sparse()) {
    std::vector<IndexedSlices> components;
    components.reserve(value.size());
    for (std::size_t r = 0; r < value.size(); ++r) {
      const IndexedSlices& slices = value.slices()[r];
      components.push_back({.values = copy_to_device(slices.values, devices[r]),
                            .indices = copy_to_device(slices.indices, devices[r]),
                            .dense_shape = slices.dense_shape});
    }
    return PerReplica(std::move(components));
  }
  std::vector<Tensor> components;
  components.reserve(value.size());
  for (std::size_t r = 0; r < value.size(); ++r) {
    components.push_back(copy_to_device(value.values()[r], devices[r]));
  }
  return PerReplica(components);
}

bool is_on(const PerReplica& value, const Devices& devices) {
  return value.size() == devices.size() && value.devices().same_set(devices);
}

constexpr const char* kRunFailed = "run failed: ";

/// Whether the error is news from the cluster, which every worker has got.
bool is_known_to_all(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const OpError& failure) {
    if (failure.code() != StatusCode::UNAVAILABLE && failure.code() != StatusCode::ABORTED) {
      return false;
    }
    return std::any_of(failure.culprits().begin(), failure.culprits().end(),
                       [](const RankInfo& culprit) { return culprit.rank >= 0; });
  } catch (...) {
    return false;
  }
}

/// "'weights', float32 (3, 4)".
std::string description(const std::string& name, const Tensor& tensor) {
  std::ostringstream text;
  text << '\'' << name << "', " << to_string(tensor.dtype()) << ' ' << tensor.shape();
  return text.str();
}

}  // namespace

MultiWorkerExtended::MultiWorkerExtended(StrategyConfiguration configuration,
                                         std::shared_ptr<Cluster> cluster, const Deadline& deadline)
    : StrategyExtended(std::move(configuration)), cluster_(std::move(cluster)) {
  if (worker_devices().size() == 1) {
    worker_device_ = worker_devices();
    return;
  }
  worker_device_ = Devices{"CPU:0"};
  host_ops_ = std::make_unique<CollectiveAllReduce>(worker_device_, cluster_->num_workers(),
                                                    communication_options(), cluster_, deadline);
}

MultiWorkerExtended::~MultiWorkerExtended() = default;

CrossDeviceOps& MultiWorkerExtended::worker_ops() const {
  return host_ops_ != nullptr ? *host_ops_ : cross_device_ops();
}

void MultiWorkerExtended::require_usable() {
  std::exception_ptr failure;
  {
    const std::lock_guard lock(failure_mutex_);
    failure = failure_;
  }
  if (failure == nullptr) return;
  const std::string text = "since then the strategy is of no use: ";
  try {
    std::rethrow_exception(failure);
  } catch (const OpError& error) {
    throw_anew(error, text + error.what(), /*operation=*/{}, /*inputs_intact=*/true);
  } catch (...) {
    throw AbortedError(text + kRunFailed + exception_text(failure));
  }
}

MultiWorkerExtended::Placed MultiWorkerExtended::place(const PerReplica& value) {
  require_usable();
  const bool is_per_replica = value.size() == worker_devices().size();
  if (!is_per_replica && value.size() != 1) {
    throw ValueError("expected one component per replica of this worker (" +
                     std::to_string(worker_devices().size()) + "), or one for the worker, got " +
                     value.to_string());
  }
  const Devices& devices = is_per_replica ? worker_devices() : worker_device_;
  return {.value = is_on(value, devices) ? value : copied_to(value, devices),
          .ops = is_per_replica ? &cross_device_ops() : &worker_ops()};
}

Mirrored MultiWorkerExtended::reduce_to_implementation(ReduceOp op, const PerReplica& value,
                                                       const Destinations& destinations,
                                                       const CommunicationOptions& options) {
  const Placed placed = place(value);
  return placed.ops->reduce(op, placed.value, destinations, options);
}

std::vector<Mirrored> MultiWorkerExtended::batch_reduce_to_implementation(
    ReduceOp op, std::span<const ValueDestinationPair> pairs, const CommunicationOptions& options) {
  require_usable();
  const bool are_all_placed = std::all_of(
      pairs.begin(), pairs.end(),
      [this](const ValueDestinationPair& pair) { return is_on(pair.value, worker_devices()); });
  if (are_all_placed) return cross_device_ops().batch_reduce(op, pairs, options);
  // One batch for each of the two ops, in this order on every worker.
  std::vector<Placed> placed;
  placed.reserve(pairs.size());
  for (const ValueDestinationPair& pair : pairs) placed.push_back(place(pair.value));
  std::vector<Mirrored> results(pairs.size());
  const Deadline deadline = options.deadline();
  CommunicationOptions left = options;
  for (CrossDeviceOps* ops : {&cross_device_ops(), &worker_ops()}) {
    std::vector<ValueDestinationPair> batch;
    std::vector<std::size_t> positions;
    batch.reserve(pairs.size());
    positions.reserve(pairs.size());
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      if (placed[i].ops != ops) continue;
      placed[i].ops = nullptr;  // the two may be one
      batch.push_back({placed[i].value, pairs[i].destinations});
      positions.push_back(i);
    }
    if (batch.empty()) continue;
    std::vector<Mirrored> reduced = ops->batch_reduce(op, batch, left);
    // Else each of the two has its own: what the environment says is not the call's.
    if (options.timeout_seconds.has_value()) left = limited(options, deadline);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      results[positions[i]] = std::move(reduced[i]);
    }
  }
  return results;
}

Mirrored MultiWorkerExtended::gather_to_implementation(const PerReplica& value,
                                                       const Destinations& destinations, int axis,
                                                       const CommunicationOptions& options) {
  const Placed placed = place(value);
  return placed.ops->gather(placed.value, destinations, axis, options);
}

Mirrored MultiWorkerExtended::reduce_equal_implementation(ReduceOp op, const PerReplica& one,
                                                          const Destinations& destinations,
                                                          const CommunicationOptions& options) {
  return local_ops_.reduce(op, one, destinations, options);
}

/// A gather to which only the chief contributes anything: the others pass no rows.
Tensor MultiWorkerExtended::first_replica_implementation(const Tensor& tensor,
                                                         const CommunicationOptions& options) {
  if (num_workers() == 1) return tensor;
  require_usable();
  std::vector<std::int64_t> dims(tensor.shape().dims().begin(), tensor.shape().dims().end());
  if (dims.empty()) dims.push_back(1);
  const Shape whole{std::span<const std::int64_t>(dims)};
  dims[0] = 0;
  const Shape nothing{std::span<const std::int64_t>(dims)};
  const Device& device = worker_device_[0];
  const Tensor own = should_checkpoint() ? copy_to_device(tensor, device).reshape(whole)
                                         : Tensor::empty(tensor.dtype(), nothing, device);
  const Mirrored all = worker_ops().gather(PerReplica(own), worker_device_, /*axis=*/0, options);
  return all.tensor().reshape(tensor.shape());
}

Tensor MultiWorkerExtended::initial_value_implementation(const std::string& name,
                                                         const Tensor& tensor) {
  if (num_workers() == 1) return tensor;
  require_usable();
  const std::string own = description(name, tensor);
  const Deadline deadline = communication_options().deadline();
  const std::vector<std::string> all = cluster_->all_gather_bytes(own, deadline);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw ValueError("the workers make different variables: rank 0 makes " + all[0] + ", rank " +
                     std::to_string(rank) + " makes " + all[rank]);
  }
  return first_replica_implementation(tensor, limited(communication_options(), deadline));
}

void MultiWorkerExtended::announce_failure(const std::exception_ptr& error) noexcept {
  // The child of a fork shares the connection and must not speak on it.
  if (num_workers() == 1 || is_forked_child()) return;
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_ != nullptr) return;
    failure_ = error;
  }
  try {
    if (is_known_to_all(error)) return;
    cluster_->abort_collective_ops(kRunFailed + exception_text(error));
  } catch (...) {  // the connection is lost: then the others hear of that
  }
}

}  // namespace crossdevice::detail
