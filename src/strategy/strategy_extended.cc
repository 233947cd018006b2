// SPDX-License-Identifier: Apache-2.0
// Checks the context, merges the options, and passes on to the cross-device ops.
#include "crossdevice/strategy/strategy_extended.h"

#include <string>
#include <utility>

#include "crossdevice/core/error.h"

#include "strategy/detail/context_frame.h"
#include "strategy/detail/elements.h"

namespace crossdevice {

namespace detail {

Tensor local_component(const DistributedValues& value, std::size_t replica) {
  if (value.is_sparse()) {
    throw ValueError(value.to_string() +
                     " is sparse: a replica's part of a distributed value is a dense Tensor; pass "
                     "slices() as a vector and take the replica's element of it");
  }
  if (replica >= value.size()) {
    throw ValueError(value.to_string() + " has no component for replica " +
                     std::to_string(replica));
  }
  return value.values()[replica];
}

void require_one_per_replica(const DistributedValues& value, std::size_t num_replicas) {
  if (value.size() != num_replicas) {
    throw ValueError("expected one component per replica (" + std::to_string(num_replicas) +
                     "), got " + value.to_string());
  }
  (void)local_component(value, 0);
}

UpdateContext::UpdateContext(const StrategyExtended& extended, const DistributedVariable& variable)
    : frame_(std::make_unique<ContextFrame>()) {
  require_cross_replica_or_default(extended, "update");
  if (&variable.extended() != &extended) {
    throw ValueError("update: variable '" + variable.name() + "' on " +
                     variable.devices().to_string() + " belongs to another strategy");
  }
  if (extended.strategy_ == nullptr) {
    throw FailedPreconditionError("update: the strategy of variable '" + variable.name() +
                                  "' is gone");
  }
  frame_->strategy = extended.strategy_;
  frame_->extended = &extended;
  frame_->previous = std::exchange(newest_frame(), frame_.get());
}

UpdateContext::~UpdateContext() { newest_frame() = frame_->previous; }

}  // namespace detail

namespace {

PerReplica first_component(const Mirrored& value) {
  if (value.is_sparse()) return PerReplica({value.slices()[0]});
  return PerReplica(value.values().first(value.empty() ? 0 : 1));
}

}  // namespace

StrategyExtended::StrategyExtended(detail::StrategyConfiguration configuration)
    : configuration_(std::move(configuration)) {
  configuration_.communication_options.validate();
}

StrategyExtended::~StrategyExtended() = default;

Mirrored StrategyExtended::reduce_to(ReduceOpArgument op, const PerReplica& value,
                                     const Destinations& destinations,
                                     const CommunicationOptions& options) {
  detail::require_cross_replica_or_default(*this, "reduce_to");
  return reduce_to_implementation(op.op(), value, destinations,
                                  communication_options().merge(options));
}

Mirrored StrategyExtended::reduce_to(ReduceOpArgument op, const Mirrored& value,
                                     const Destinations& destinations,
                                     const CommunicationOptions& options) {
  detail::require_cross_replica_or_default(*this, "reduce_to");
  const PerReplica one = first_component(value);
  const bool adds_up = op.op() == ReduceOp::SUM || op.op() == ReduceOp::PROD;
  if (adds_up && num_replicas_in_sync() != 1 && !detail::is_all_zero(one)) {
    throw ValueError("a value that is the same on all " + std::to_string(num_replicas_in_sync()) +
                     " replicas cannot be reduced with " + std::string(to_string(op.op())) +
                     ": use MEAN, or a PerReplica of their components (" + one.to_string() + ")");
  }
  return reduce_equal_implementation(op.op(), one, destinations,
                                     communication_options().merge(options));
}

Mirrored StrategyExtended::reduce_to(ReduceOpArgument op, const Tensor& value,
                                     const Destinations& destinations,
                                     const CommunicationOptions& options) {
  if (num_workers() > 1) return reduce_to(op, PerReplica(value), destinations, options);
  return reduce_to(op, Mirrored(std::span<const Tensor>(&value, 1)), destinations, options);
}

Mirrored StrategyExtended::reduce_to(ReduceOpArgument op, const Variable& value,
                                     const Destinations& destinations,
                                     const CommunicationOptions& options) {
  return reduce_to(op, value.components(), destinations, options);
}

std::vector<Mirrored> StrategyExtended::batch_reduce_to(ReduceOpArgument op,
                                                        std::span<const ValueDestinationPair> pairs,
                                                        const CommunicationOptions& options) {
  detail::require_cross_replica_or_default(*this, "batch_reduce_to");
  return batch_reduce_to_implementation(op.op(), pairs, communication_options().merge(options));
}

Mirrored StrategyExtended::broadcast_to(const Tensor& tensor, const Destinations& destinations) {
  detail::require_cross_replica_or_default(*this, "broadcast_to");
  return broadcast_to_implementation(tensor, destinations);
}

Mirrored StrategyExtended::gather_to(const PerReplica& value, const Destinations& destinations,
                                     int axis, const CommunicationOptions& options) {
  detail::require_cross_replica_or_default(*this, "gather_to");
  return gather_to_implementation(value, destinations, axis,
                                  communication_options().merge(options));
}

Mirrored StrategyExtended::reduce_to_implementation(ReduceOp op, const PerReplica& value,
                                                    const Destinations& destinations,
                                                    const CommunicationOptions& options) {
  return cross_device_ops().reduce(op, value, destinations, options);
}

Mirrored StrategyExtended::reduce_equal_implementation(ReduceOp op, const PerReplica& one,
                                                       const Destinations& destinations,
                                                       const CommunicationOptions& options) {
  return cross_device_ops().reduce(op, one, destinations, options);
}

std::vector<Mirrored> StrategyExtended::batch_reduce_to_implementation(
    ReduceOp op, std::span<const ValueDestinationPair> pairs, const CommunicationOptions& options) {
  return cross_device_ops().batch_reduce(op, pairs, options);
}

Mirrored StrategyExtended::broadcast_to_implementation(const Tensor& tensor,
                                                       const Destinations& destinations) {
  return cross_device_ops().broadcast(tensor, destinations);
}

Mirrored StrategyExtended::gather_to_implementation(const PerReplica& value,
                                                    const Destinations& destinations, int axis,
                                                    const CommunicationOptions& options) {
  return cross_device_ops().gather(value, destinations, axis, options);
}

Tensor StrategyExtended::first_replica_implementation(const Tensor& tensor,
                                                      const CommunicationOptions& /*options*/) {
  return tensor;
}

Tensor StrategyExtended::initial_value_implementation(const std::string& /*name*/,
                                                      const Tensor& tensor) {
  return tensor;
}

void StrategyExtended::require_usable() {}

void StrategyExtended::announce_failure(const std::exception_ptr& /*error*/) noexcept {}

}  // namespace crossdevice
