// SPDX-License-Identifier: Apache-2.0
// Components that are combined when they are read.
#include "crossdevice/strategy/sync_on_read_variable.h"

#include <string>
#include <vector>

#include "crossdevice/core/error.h"
#include "crossdevice/device/copy.h"
#include "crossdevice/strategy/strategy.h"

#include "strategy/detail/elements.h"

namespace crossdevice {

SyncOnReadVariable::SyncOnReadVariable(Strategy& strategy, const Tensor& initial_value,
                                       const VariableOptions& options)
    : DistributedVariable(strategy, initial_value, options, VariableSynchronization::ON_READ) {}

SyncOnReadVariable::~SyncOnReadVariable() = default;

Tensor SyncOnReadVariable::read() const {
  if (const ReplicaContext* context = replica_context()) {
    return read_component(local_id(*context));
  }
  switch (aggregation()) {
    case VariableAggregation::SUM:
    case VariableAggregation::MEAN:
      return extended()
          .reduce_to(reduce_op_from(aggregation()), components(), devices()[0])
          .tensor();
    case VariableAggregation::ONLY_FIRST_REPLICA:
      return copy_to_device(extended().first_replica_implementation(
                                components().values()[0], extended().communication_options()),
                            devices()[0]);
    case VariableAggregation::NONE:
      break;
  }
  throw ValueError("variable '" + name() +
                   "' cannot be read outside replicas: with aggregation NONE its components cannot "
                   "be combined; expected SUM, MEAN or ONLY_FIRST_REPLICA");
}

void SyncOnReadVariable::update(detail::VariableUpdate update, const VariableValue& value) {
  const std::span<const Tensor> tensors = components().values();
  if (const ReplicaContext* context = replica_context()) {
    const std::size_t r = local_id(*context);
    detail::apply_update(update, tensors[r], value.for_component(tensors[r], r, tensors.size()));
    return;
  }
  if (aggregation() != VariableAggregation::SUM) {
    update_components(update, value);
    return;
  }
  if (update != detail::VariableUpdate::ASSIGN) {
    throw ValueError(std::string(to_string(update)) + " to variable '" + name() +
                     "' outside replicas: with synchronization ON_READ and aggregation SUM the "
                     "value would count once per replica; assign inside replicas instead");
  }
  std::vector<Tensor> parts;
  for (std::size_t r = 0; r < tensors.size(); ++r) {
    parts.push_back(detail::equal_part(value.for_component(tensors[r], r, tensors.size()),
                                       extended().first_replica_id() + r,
                                       extended().num_replicas_in_sync()));
  }
  update_components(update, PerReplica(parts));
}

}  // namespace crossdevice
