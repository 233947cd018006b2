// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/cross_device_ops.h"

#include <memory>
#include <utility>

#include "crossdevice/collective/pack_choice.h"
#include "crossdevice/comm/job_news.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/device/scratch_lease.h"

#include "ops/detail/active_operation.h"
#include "ops/detail/batch_results.h"
#include "ops/detail/component_reduce.h"
#include "ops/detail/operation_queue.h"
#include "ops/detail/plain_reduce.h"
#include "ops/detail/settle.h"
#include "ops/detail/validation.h"

namespace crossdevice {

using detail::ActiveOperation;
using detail::PlainReduce;

namespace {

/// Returns whether it is in place, when nothing is under way on its tensors.
bool require_valid_reduce(ReduceOp op, const PerReplica& value, const Destinations& destinations,
                          const CommunicationOptions& options) {
  const PlainReduce plain = detail::look_for_plain_reduce(op, value, destinations);
  if (plain != PlainReduce::NO) {
    value.devices().require_present();
    detail::require_implementation(value, options);
    return plain == PlainReduce::IN_PLACE;
  }
  detail::require_reducible(op, value, destinations);
  detail::require_implementation(value, options);
  const bool in_place = detail::require_no_overlaps(value, destinations);
  detail::wait_until_ready(value, destinations);
  return in_place;
}

}  // namespace

CrossDeviceOps::CrossDeviceOps(std::optional<double> timeout_seconds)
    : queue_(std::make_shared<detail::OperationQueue>(timeout_seconds)) {
  (void)
      environment();  // a variable that holds nonsense is reported here, not in the middle of an operation
}

// Asynchronous operations hold the queue themselves, but their hooks are this object's: none may be left.
CrossDeviceOps::~CrossDeviceOps() { queue_->drain(); }

Mirrored CrossDeviceOps::reduce(ReduceOp op, const PerReplica& value,
                                const Destinations& destinations,
                                const CommunicationOptions& options) {
  queue_->rethrow_kept_error();
  options.validate();
  const bool in_place = require_valid_reduce(op, value, destinations, options);
  ActiveOperation active(
      *queue_, {detail::kReduce, 1, detail::component_size_bytes(value), in_place, value.devices()},
      options);
  return active.run([&] {
    Mirrored result = reduce_implementation(op, value, destinations, options);
    detail::settle(result, destinations);
    return result;
  });
}

void CrossDeviceOps::reduce_into(ReduceOp op, const PerReplica& value,
                                 const DistributedValues& outputs,
                                 const CommunicationOptions& options) {
  (void)reduce(op, value, Destinations::into(outputs), options);
}

std::vector<Mirrored> CrossDeviceOps::batch_reduce(ReduceOp op,
                                                   std::span<const ValueDestinationPair> pairs,
                                                   const CommunicationOptions& options) {
  queue_->rethrow_kept_error();
  options.validate();
  const detail::ReducibleBatch size = detail::require_batch_reducible(op, pairs);
  detail::require_implementation(pairs, options);
  for (const ValueDestinationPair& pair : pairs) {
    detail::wait_until_ready(pair.value, pair.destinations);
  }
  if (pairs.empty()) return {};
  ActiveOperation active(*queue_,
                         {detail::kBatchReduce, pairs.size(), size.size_bytes, size.in_place,
                          pairs[0].value.devices()},
                         options);
  return active.run([&] {
    std::vector<Mirrored> results = batch_reduce_implementation(op, pairs, options);
    detail::settle_batch(results, pairs);
    return results;
  });
}

void CrossDeviceOps::batch_reduce_into(ReduceOp op, std::span<const PerReplica> values,
                                       const CommunicationOptions& options) {
  const detail::ScratchLease<std::vector<ValueDestinationPair>> pairs;
  pairs->reserve(values.size());
  for (const PerReplica& value : values) pairs->push_back({value, Destinations::into(value)});
  detail::drop_results(batch_reduce(op, *pairs, options));
}

void CrossDeviceOps::batch_reduce_into(ReduceOp op, std::span<const ValueOutputPair> pairs,
                                       const CommunicationOptions& options) {
  const detail::ScratchLease<std::vector<ValueDestinationPair>> lowered;
  lowered->reserve(pairs.size());
  for (const ValueOutputPair& pair : pairs) {
    lowered->push_back({pair.value, Destinations::into(pair.outputs)});
  }
  detail::drop_results(batch_reduce(op, *lowered, options));
}

Mirrored CrossDeviceOps::broadcast(const Tensor& tensor, const Destinations& destinations) {
  queue_->rethrow_kept_error();
  detail::require_broadcastable(tensor, destinations);
  const bool in_place = detail::require_no_overlaps(PerReplica(tensor), destinations);
  detail::wait_until_ready(tensor, destinations);
  ActiveOperation active(
      *queue_, {detail::kBroadcast, 1, tensor.size_bytes(), in_place, tensor.device()}, {});
  return active.run([&] {
    Mirrored result = broadcast_implementation(tensor, destinations);
    detail::settle(result, destinations);
    return result;
  });
}

Mirrored CrossDeviceOps::broadcast(const IndexedSlices& slices, const Destinations& destinations) {
  queue_->rethrow_kept_error();
  slices.validate();
  detail::require_broadcastable(slices.values, destinations);
  detail::wait_until_ready(PerReplica{slices}, destinations);
  ActiveOperation active(
      *queue_, {detail::kBroadcast, 1, slices.values.size_bytes(), false, slices.values.device()},
      {});
  return active.run([&] {
    const Mirrored values = broadcast_implementation(slices.values, destinations.devices());
    const Mirrored indices = broadcast_implementation(slices.indices, destinations.devices());
    std::vector<IndexedSlices> copies;
    copies.reserve(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      copies.push_back({values.values()[i], indices.values()[i], slices.dense_shape});
    }
    return Mirrored(std::move(copies));
  });
}

void CrossDeviceOps::broadcast_into(const Tensor& tensor, const DistributedValues& outputs) {
  (void)broadcast(tensor, Destinations::into(outputs));
}

Mirrored CrossDeviceOps::gather(const PerReplica& value, const Destinations& destinations, int axis,
                                const CommunicationOptions& options) {
  queue_->rethrow_kept_error();
  options.validate();
  (void)detail::require_gatherable(
      value, destinations, axis,
      gathers_from_other_workers() ? detail::GatherScope::ALL_WORKERS : detail::GatherScope::VALUE);
  detail::require_implementation(value, options);
  detail::require_apart(value, destinations);
  detail::wait_until_ready(value, destinations);
  ActiveOperation active(
      *queue_, {detail::kGather, 1, detail::component_size_bytes(value), false, value.devices()},
      options);
  return active.run([&] {
    Mirrored result = gather_implementation(value, destinations, axis, options);
    detail::settle(result, destinations);
    return result;
  });
}

void CrossDeviceOps::gather_into(const PerReplica& value, const DistributedValues& outputs,
                                 int axis, const CommunicationOptions& options) {
  (void)gather(value, Destinations::into(outputs), axis, options);
}

std::size_t CrossDeviceOps::streaming_pack_bytes() const { return kDefaultPackBytes; }

void CrossDeviceOps::check() { queue_->rethrow_kept_error(); }

void CrossDeviceOps::set_waits_for_workers(Cluster& cluster) {
  queue_->set_waits_for_workers(std::make_unique<detail::JobNews>(cluster));
}

void CrossDeviceOps::set_reports_to(const Cluster& cluster) {
  queue_->completed().set_target(detail::last_completed(cluster));
}

std::vector<Mirrored> CrossDeviceOps::batch_reduce_implementation(
    ReduceOp op, std::span<const ValueDestinationPair> pairs, const CommunicationOptions& options) {
  std::vector<Mirrored> results = detail::make_results(pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const ValueDestinationPair& pair = pairs[i];
    results[i] = reduce_implementation(op, pair.value, pair.destinations, options);
    detail::settle(results[i], pair.destinations);
    ActiveOperation& active = active_operation();
    active.complete_item(active.item_of(pair), results[i]);
  }
  return results;
}

Mirrored CrossDeviceOps::broadcast_implementation(const Tensor& tensor,
                                                  const Destinations& destinations) {
  Mirrored result = destinations.make_result(tensor.dtype(), tensor.shape(), PerReplica(tensor));
  detail::broadcast_component(tensor, result, active_operation());
  return result;
}

Mirrored CrossDeviceOps::gather_implementation(const PerReplica& value,
                                               const Destinations& destinations, int axis,
                                               const CommunicationOptions& /*options*/) {
  const Shape shape = detail::require_gatherable(value, destinations, axis);
  Mirrored result = destinations.make_result(value.dtype(), shape, value);
  detail::gather_components(value, static_cast<std::size_t>(axis), result, active_operation());
  return result;
}

const OperationRecord& CrossDeviceOps::current_operation() const {
  return active_operation().record();
}

Deadline CrossDeviceOps::current_deadline() const { return active_operation().deadline(); }

void CrossDeviceOps::require_time_left() const { active_operation().require_time_left(); }

detail::ActiveOperation& CrossDeviceOps::active_operation() const {
  if (!queue_->is_held_by_this_thread()) {
    throw FailedPreconditionError("no operation of this object runs on this thread");
  }
  return *queue_->active();
}

}  // namespace crossdevice
