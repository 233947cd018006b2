// SPDX-License-Identifier: Apache-2.0
/// What is common to distributed variables: components that live on devices, and how updates of replicas combine.
/// TF counterpart: DistributedVariable, tf.VariableAggregation, tf.VariableSynchronization.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "crossdevice/core/export.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/ops/values.h"

namespace crossdevice {

enum class VariableAggregation : std::uint8_t { NONE, SUM, MEAN, ONLY_FIRST_REPLICA };
[[nodiscard]] CROSSDEVICE_EXPORT std::string_view to_string(VariableAggregation aggregation);

/// TF's ReduceOp.from_variable_aggregation.
///
/// Errors   ValueError: NONE and ONLY_FIRST_REPLICA.
[[nodiscard]] CROSSDEVICE_EXPORT ReduceOp reduce_op_from(VariableAggregation aggregation);

/// As a destination a variable names its devices and is never assigned; as a value it is its components.
class CROSSDEVICE_EXPORT Variable {
 public:
  virtual ~Variable() = default;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] VariableAggregation aggregation() const { return aggregation_; }
  [[nodiscard]] DType dtype() const { return components_.dtype(); }
  [[nodiscard]] Shape shape() const { return components_.shape(); }
  [[nodiscard]] const Devices& devices() const { return components_.devices(); }
  /// The components: handles on the variable's own memory.
  [[nodiscard]] const PerReplica& components() const { return components_; }

 protected:
  /// Errors   ValueError: no dense component; MEAN of a dtype that is neither floating nor complex.
  Variable(std::string name, PerReplica components, VariableAggregation aggregation);
  Variable(const Variable&) = default;  // a handle: copies share the components
  Variable& operator=(const Variable&) = default;

 private:
  std::string name_;
  PerReplica components_;
  VariableAggregation aggregation_ = VariableAggregation::NONE;
};

}  // namespace crossdevice
