// SPDX-License-Identifier: Apache-2.0
// Assignments that keep all components equal.
#include "crossdevice/strategy/mirrored_variable.h"

#include <algorithm>
#include <string>
#include <vector>

#include "crossdevice/core/error.h"
#include "crossdevice/strategy/replica_context.h"
#include "crossdevice/strategy/strategy.h"

#include "strategy/detail/context_frame.h"
#include "strategy/detail/replica_call.h"

namespace crossdevice {

namespace {

using detail::CallKind;
using detail::ReplicaCall;

CallKind kind_of(detail::VariableUpdate update) {
  switch (update) {
    case detail::VariableUpdate::ASSIGN:
      return CallKind::ASSIGN;
    case detail::VariableUpdate::ASSIGN_ADD:
      return CallKind::ASSIGN_ADD;
    case detail::VariableUpdate::ASSIGN_SUB:
      return CallKind::ASSIGN_SUB;
  }
  return CallKind::ASSIGN;  // unreachable: every enumerator returns above
}

}  // namespace

/// One replica's assignment, waiting for the others'.
class MirroredVariable::Assignment final : public detail::ReplicaCall {
 public:
  Assignment(MirroredVariable& variable, detail::VariableUpdate update, const VariableValue& value,
             std::size_t replica)
      : ReplicaCall({.kind = kind_of(update),
                     .options = &variable.extended().communication_options(),
                     .variable = variable.components().values()[0].data(),
                     .variable_name = variable.name()},
                    variable.extended().communication_options().deadline()),
        variable_(variable),
        update_(update),
        value_(value),
        tensor_(value.for_component(variable.components().values()[replica], replica,
                                    variable.components().size())) {}

  void execute(std::span<ReplicaCall* const> calls) override {
    const detail::ScopedFrame frame(
        {.strategy = variable_.extended().strategy_, .extended = &variable_.extended()});
    variable_.update_components(update_, combined(calls));
  }

 private:
  [[nodiscard]] VariableValue combined(std::span<ReplicaCall* const> calls) const {
    const bool is_same_number = std::all_of(calls.begin(), calls.end(), [this](ReplicaCall* call) {
      return static_cast<Assignment*>(call)->value_.is_same_number(value_);
    });
    StrategyExtended& extended = variable_.extended();
    const VariableAggregation aggregation = variable_.aggregation();
    if (aggregation == VariableAggregation::NONE) return tensor_;  // one replica
    if (aggregation == VariableAggregation::ONLY_FIRST_REPLICA) {
      return extended.broadcast_to_implementation(
          extended.first_replica_implementation(tensor_, detail::remaining_options(calls)),
          variable_);
    }
    const ReduceOp op = reduce_op_from(aggregation);
    // What other workers assign is not known here: with several, numbers are combined like tensors.
    if (is_same_number && extended.num_workers() == 1) {
      require_reducible(op);
      return value_;
    }
    std::vector<Tensor> tensors;
    for (ReplicaCall* call : calls) tensors.push_back(static_cast<Assignment*>(call)->tensor_);
    return extended.reduce_to_implementation(op, PerReplica(tensors), variable_,
                                             detail::remaining_options(calls));
  }

  void require_reducible(ReduceOp op) const {
    const std::size_t replicas = variable_.extended().num_replicas_in_sync();
    if (op == ReduceOp::MEAN || replicas == 1 || value_.is_zero()) return;
    throw ValueError(std::string(detail::to_string(update_)) + " to variable '" + variable_.name() +
                     "' with aggregation SUM: the number " + value_.to_string() +
                     " is the same on all " + std::to_string(replicas) +
                     " replicas, and adding it up is hardly meant; assign tensors, or use "
                     "aggregation MEAN");
  }

  MirroredVariable& variable_;
  detail::VariableUpdate update_;
  const VariableValue& value_;
  Tensor tensor_;
};

MirroredVariable::MirroredVariable(Strategy& strategy, const Tensor& initial_value,
                                   const VariableOptions& options)
    : DistributedVariable(strategy, initial_value, options, VariableSynchronization::ON_WRITE) {}

MirroredVariable::~MirroredVariable() = default;

Tensor MirroredVariable::read() const {
  const ReplicaContext* context = replica_context();
  return read_component(context == nullptr ? 0 : local_id(*context));
}

void MirroredVariable::update(detail::VariableUpdate update, const VariableValue& value) {
  ReplicaContext* context = replica_context();
  if (context == nullptr) {
    if (value.is_per_replica() && components().size() > 1) {
      throw ValueError(std::string(to_string(update)) + " to variable '" + name() +
                       "' outside replicas: expected one value, got " + value.to_string() +
                       "; the components would differ");
    }
    update_components(update, value);
    return;
  }
  if (aggregation() == VariableAggregation::NONE && extended().num_replicas_in_sync() > 1) {
    throw ValueError("You must specify an aggregation to " + std::string(to_string(update)) +
                     " variable '" + name() +
                     "' inside a replica: with NONE the replicas' values could not be combined");
  }
  Assignment assignment(*this, update, value, local_id(*context));
  context->meet(assignment);
}

}  // namespace crossdevice
