// SPDX-License-Identifier: Apache-2.0
// Making a variable's components, and updating all of them.
#include "crossdevice/strategy/distributed_variable.h"

#include <algorithm>
#include <vector>

#include "crossdevice/core/error.h"
#include "crossdevice/device/copy.h"
#include "crossdevice/strategy/strategy.h"

#include "strategy/detail/context_frame.h"

namespace crossdevice {

namespace {

PerReplica read_only(const PerReplica& components) {
  std::vector<Tensor> views;
  for (const Tensor& component : components.values()) views.push_back(component.as_read_only());
  return PerReplica(views);
}

}  // namespace

std::string_view to_string(VariableSynchronization synchronization) {
  switch (synchronization) {
    case VariableSynchronization::AUTO:
      return "AUTO";
    case VariableSynchronization::NONE:
      return "NONE";
    case VariableSynchronization::ON_WRITE:
      return "ON_WRITE";
    case VariableSynchronization::ON_READ:
      return "ON_READ";
  }
  return "";  // unreachable: every enumerator returns above
}

/// A copy of the initial value on every device: whatever it came from, the components start equal.
PerReplica DistributedVariable::make_components(const Strategy& strategy,
                                                const Tensor& initial_value,
                                                const VariableOptions& options) {
  detail::require_cross_replica_or_default(strategy.extended(), "making a variable");
  detail::require_no_other_scope(strategy.extended());
  if (!initial_value) {
    throw ValueError("variable '" + options.name +
                     "': the initial value is no tensor, only an empty handle");
  }
  const Tensor agreed =
      strategy.extended().initial_value_implementation(options.name, initial_value);
  std::vector<Tensor> components;
  for (const Device& device : strategy.extended().parameter_devices()) {
    components.push_back(copy_to_device(agreed, device));
  }
  return PerReplica(components);
}

DistributedVariable::DistributedVariable(Strategy& strategy, const Tensor& initial_value,
                                         const VariableOptions& options,
                                         VariableSynchronization synchronization)
    : Variable(options.name, make_components(strategy, initial_value, options),
               options.aggregation),
      extended_(strategy.shared_extended()),
      synchronization_(synchronization),
      read_only_(read_only(components())) {
  if (options.synchronization != VariableSynchronization::AUTO &&
      options.synchronization != synchronization) {
    throw ValueError("variable '" + options.name + "': expected synchronization AUTO or " +
                     std::string(to_string(synchronization)) + ", got " +
                     std::string(to_string(options.synchronization)));
  }
}

DistributedVariable::~DistributedVariable() = default;

ReplicaContext* DistributedVariable::replica_context() const {
  const detail::ContextFrame* frame = detail::current_frame();
  if (frame == nullptr) return nullptr;
  if (frame->extended != extended_.get()) {
    throw FailedPreconditionError("Mixing different strategies: variable '" + name() +
                                  "' belongs to another strategy than the thread is in");
  }
  return frame->replica;
}

std::size_t DistributedVariable::local_id(const ReplicaContext& context) const {
  return context.replica_id_in_sync_group() - extended_->first_replica_id();
}

void DistributedVariable::update_components(detail::VariableUpdate update,
                                            const VariableValue& value) const {
  const std::span<const Tensor> tensors = components().values();
  std::vector<Tensor> parts;  // all checked before the first is written
  for (std::size_t r = 0; r < tensors.size(); ++r) {
    parts.push_back(value.for_component(tensors[r], r, tensors.size()));
    // A value that lies in a component, as read() gives it, means what was there before this update.
    const auto earlier = tensors.first(r);
    const auto is_part = [&](const Tensor& tensor) { return tensor.data() == parts[r].data(); };
    if (std::any_of(earlier.begin(), earlier.end(), is_part)) {
      parts[r] = copy_to_device(parts[r], parts[r].device());
    }
  }
  for (std::size_t r = 0; r < tensors.size(); ++r) {
    detail::apply_update(update, tensors[r], parts[r]);
  }
}

}  // namespace crossdevice
