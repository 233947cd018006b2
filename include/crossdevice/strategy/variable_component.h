// SPDX-License-Identifier: Apache-2.0
/// One device's component of a variable: what StrategyExtended::update hands to its function.
#pragma once

#include "crossdevice/core/export.h"
#include "crossdevice/device/tensor.h"
#include "crossdevice/strategy/variable_value.h"

namespace crossdevice {

namespace detail {
/// How a value changes a variable.
enum class VariableUpdate : std::uint8_t { ASSIGN, ASSIGN_ADD, ASSIGN_SUB };
/// "assign", "assign_add", "assign_sub".
[[nodiscard]] CROSSDEVICE_EXPORT const char* to_string(VariableUpdate update);
/// component = value, += value, -= value; 16-bit and 8-bit floats are computed in float32 and rounded once.
///
/// Errors   ValueError: dtypes or shapes differ; bool has no sum.
CROSSDEVICE_EXPORT void apply_update(VariableUpdate update, const Tensor& component,
                                     const Tensor& value);
}  // namespace detail

/// A handle on the variable's own memory on one device.
///
/// Order    the assignments are complete on return. A distributed value gives the component its own part.
/// Errors   ValueError: a value of another dtype or shape.
class CROSSDEVICE_EXPORT VariableComponent {
 public:
  VariableComponent(Tensor tensor, std::size_t index, std::size_t num_components)
      : tensor_(std::move(tensor)), index_(index), num_components_(num_components) {}

  /// The component itself; writing it is writing the variable.
  [[nodiscard]] const Tensor& tensor() const { return tensor_; }
  [[nodiscard]] const Device& device() const { return tensor_.device(); }

  void assign(const VariableValue& value) { update(detail::VariableUpdate::ASSIGN, value); }
  void assign_add(const VariableValue& value) { update(detail::VariableUpdate::ASSIGN_ADD, value); }
  void assign_sub(const VariableValue& value) { update(detail::VariableUpdate::ASSIGN_SUB, value); }

 private:
  void update(detail::VariableUpdate update, const VariableValue& value);
  Tensor tensor_;
  std::size_t index_;
  std::size_t num_components_;
};

}  // namespace crossdevice
