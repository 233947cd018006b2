// SPDX-License-Identifier: Apache-2.0
// The public half of every strategy: context checks, reductions to one tensor, variables.
#include "crossdevice/strategy/strategy.h"

#include <exception>
#include <string>

#include "crossdevice/core/error.h"
#include "crossdevice/device/shutdown.h"
#include "crossdevice/strategy/mirrored_variable.h"
#include "crossdevice/strategy/sync_on_read_variable.h"

#include "strategy/detail/axis_reduce.h"
#include "strategy/detail/context_frame.h"
#include "strategy/detail/replica_runner.h"

namespace crossdevice {

namespace {

/// Where the results of reduce and gather go: the host, as in TF.
const Device& host() {
  static const Device device("CPU:0");
  return device;
}

Tensor single(const Mirrored& value) {
  return value.is_sparse() ? to_dense(value.slices()[0]) : value.tensor();
}

/// Without dense components there are no axes; the message is the same for every form.
void require_dense(const DistributedValues& value) {
  if (value.is_sparse()) {
    throw ValueError("reduce along axes takes dense values, got " + value.to_string());
  }
}

}  // namespace

Strategy::Strategy(std::shared_ptr<StrategyExtended> extended) : extended_(std::move(extended)) {
  extended_->strategy_ = this;
  runner_ = std::make_unique<detail::ReplicaRunner>(*this);
}

Strategy::~Strategy() {
  runner_.reset();
  extended_->strategy_ = nullptr;
}

void Strategy::run_replicas(detail::ReplicaBody body) {
  detail::require_not_forked();
  detail::require_not_inside_run(*extended_);
  detail::require_cross_replica_or_default(*extended_, "run");
  extended_->require_usable();
  try {
    runner_->run(body);
  } catch (...) {
    extended_->announce_failure(std::current_exception());
    throw;
  }
}

void Strategy::require_cross_replica_context(const char* method) const {
  detail::require_cross_replica_or_default(*extended_, method);
}

Tensor Strategy::reduce(ReduceOpArgument op, const PerReplica& value, const Axes& axis) {
  require_cross_replica_context("reduce");
  if (value.size() != num_local_replicas()) {
    throw ValueError("reduce: expected one component per replica (" +
                     std::to_string(num_local_replicas()) + "), got " + value.to_string());
  }
  if (!axis.has_value()) return single(extended_->reduce_to(op, value, host()));

  require_dense(value);
  return reduce_axes(op.op(), value.values(), axis);
}

Tensor Strategy::reduce(ReduceOpArgument op, const Mirrored& value, const Axes& axis) {
  require_cross_replica_context("reduce");
  if (!axis.has_value()) return single(extended_->reduce_to(op, value, host()));
  require_dense(value);
  if (value.empty()) throw ValueError("reduce: the value has no components");
  return reduce_equal_axes(op.op(), value.values()[0], axis);
}

Tensor Strategy::reduce(ReduceOpArgument op, const Tensor& value, const Axes& axis) {
  require_cross_replica_context("reduce");
  if (!axis.has_value()) return single(extended_->reduce_to(op, value, host()));
  if (extended_->num_workers() == 1) return reduce_equal_axes(op.op(), value, axis);
  return reduce_axes(op.op(), std::span<const Tensor>(&value, 1), axis);
}

Tensor Strategy::reduce_axes(ReduceOp op, std::span<const Tensor> values, const Axes& axis) {
  const DType dtype = values[0].dtype();
  for (std::size_t r = 1; r < values.size(); ++r) {  // the partial results are all of one wide type
    if (values[r].dtype() == dtype) continue;
    throw ValueError("reduce: values differ: replica 0 " + std::string(to_string(dtype)) +
                     ", replica " + std::to_string(r) + " " +
                     std::string(to_string(values[r].dtype())));
  }
  std::vector<Tensor> partials;
  std::vector<Tensor> counts;
  for (const Tensor& value : values) {
    detail::AxisPartial partial = detail::reduce_axes(op, value, axis.view());
    partials.push_back(std::move(partial.tensor));
    counts.push_back(std::move(partial.count));
  }
  const ReduceOp across = op == ReduceOp::MEAN ? ReduceOp::SUM : op;
  const Tensor total = extended_->reduce_to(across, PerReplica(partials), host()).tensor();
  if (op != ReduceOp::MEAN) return detail::finish_axes(op, dtype, total, 1);
  const Tensor count = extended_->reduce_to(ReduceOp::SUM, PerReplica(counts), host()).tensor();
  return detail::finish_axes(op, dtype, total, count.span<const std::int64_t>()[0]);
}

Tensor Strategy::reduce_equal_axes(ReduceOp op, const Tensor& value, const Axes& axis) {
  const detail::AxisPartial partial = detail::reduce_axes(op, value, axis.view());
  const Tensor finished = detail::finish_axes(op, value.dtype(), partial.tensor,
                                              partial.count.span<const std::int64_t>()[0]);
  return single(extended_->reduce_to(op, Mirrored(std::span<const Tensor>(&finished, 1)), host()));
}

Tensor Strategy::reduce(ReduceOpArgument op, const Variable& value, const Axes& axis) {
  return reduce(op, value.components(), axis);
}

Tensor Strategy::gather(const PerReplica& value, int axis) {
  require_cross_replica_context("gather");
  if (value.size() != num_local_replicas()) {
    throw ValueError("gather: expected one component per replica (" +
                     std::to_string(num_local_replicas()) + "), got " + value.to_string());
  }
  return extended_->gather_to(value, host(), axis).tensor();
}

std::shared_ptr<DistributedVariable> Strategy::make_variable(const Tensor& initial_value,
                                                             const VariableOptions& options) {
  switch (options.synchronization) {
    case VariableSynchronization::AUTO:
    case VariableSynchronization::ON_WRITE:
      return std::make_shared<MirroredVariable>(*this, initial_value, options);
    case VariableSynchronization::ON_READ:
      return std::make_shared<SyncOnReadVariable>(*this, initial_value, options);
    case VariableSynchronization::NONE:
      break;
  }
  throw ValueError("variable '" + options.name +
                   "': synchronization NONE is not possible for a variable with a component per "
                   "replica; expected AUTO, ON_WRITE or ON_READ");
}

}  // namespace crossdevice
