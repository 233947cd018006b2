// SPDX-License-Identifier: Apache-2.0
// What a value means for one component of a variable.
#include "crossdevice/strategy/variable_value.h"

#include "crossdevice/core/error.h"
#include "crossdevice/strategy/distributed_variable.h"
#include "crossdevice/strategy/replica_nest.h"
#include "crossdevice/strategy/strategy_context.h"
#include "crossdevice/strategy/variable_component.h"

#include "strategy/detail/elements.h"

namespace crossdevice {

VariableValue::VariableValue(const DistributedVariable& variable)
    : components_(variable.components()), kind_(Kind::MIRRORED) {
  if (variable.synchronization() != VariableSynchronization::ON_READ) return;
  const bool is_in_replica = has_strategy() && !in_cross_replica_context();
  if (is_in_replica) {
    kind_ = Kind::PER_REPLICA;
  } else {
    components_ = variable.read();
    kind_ = Kind::TENSOR;
  }
}

Tensor VariableValue::for_component(const Tensor& component, std::size_t index,
                                    std::size_t num_components) const {
  Tensor value;
  switch (kind_) {
    case Kind::NUMBER:
      value = detail::make_scalar(number_, component.dtype(), component.device());
      break;
    case Kind::TENSOR:
      value = components_.values()[0];
      break;
    case Kind::PER_REPLICA:
    case Kind::MIRRORED:
      detail::require_one_per_replica(components_, num_components);
      value = components_.values()[index];
      break;
  }
  if (!value) throw ValueError("the assigned value is no tensor, only an empty handle");
  if (value.dtype() != component.dtype() || value.shape() != component.shape()) {
    throw ValueError("assigned value: expected " + component.to_string() + ", got " +
                     value.to_string());
  }
  return value;
}

bool VariableValue::is_zero() const {
  return is_number() && std::visit([](auto number) { return number == 0; }, number_);
}

std::string VariableValue::to_string() const {
  if (!is_number()) return components_.to_string();
  return std::visit([](auto number) { return std::to_string(number); }, number_);
}

void VariableComponent::update(detail::VariableUpdate update, const VariableValue& value) {
  detail::apply_update(update, tensor_, value.for_component(tensor_, index_, num_components_));
}

}  // namespace crossdevice
