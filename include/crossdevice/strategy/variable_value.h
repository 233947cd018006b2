// SPDX-License-Identifier: Apache-2.0
/// What can be assigned to a variable: a tensor, a distributed value, another variable or a number.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <variant>

#include "crossdevice/core/export.h"
#include "crossdevice/device/tensor.h"
#include "crossdevice/ops/values.h"

namespace crossdevice {

class DistributedVariable;

/// Memory   keeps handles, copies no elements.
class CROSSDEVICE_EXPORT VariableValue {
 public:
  // NOLINTBEGIN(google-explicit-constructor): TF assigns any of them
  VariableValue(const Tensor& tensor) : components_(tensor), kind_(Kind::TENSOR) {}
  VariableValue(const PerReplica& values) : components_(values), kind_(Kind::PER_REPLICA) {}
  VariableValue(const Mirrored& values) : components_(values), kind_(Kind::MIRRORED) {}
  /// What it reads as where the thread is: inside a replica its own component.
  VariableValue(const DistributedVariable& variable);
  /// A scalar, converted to the variable's dtype.
  template <std::floating_point T>
  VariableValue(T number) : number_(static_cast<double>(number)), kind_(Kind::NUMBER) {}
  template <std::signed_integral T>
  VariableValue(T number) : number_(static_cast<std::int64_t>(number)), kind_(Kind::NUMBER) {}
  template <std::unsigned_integral T>
  VariableValue(T number) : number_(static_cast<std::uint64_t>(number)), kind_(Kind::NUMBER) {}
  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] bool is_number() const { return kind_ == Kind::NUMBER; }
  /// Whether the components may differ.
  [[nodiscard]] bool is_per_replica() const { return kind_ == Kind::PER_REPLICA; }
  /// A tensor for `component` of a variable: the number as a scalar there, the tensor itself, or the value's own component.
  ///
  /// Errors   ValueError: the dtypes or shapes differ, the number has no exact form in an integer dtype, a distributed value has another number of
  ///          components than `num_components` or is sparse.
  [[nodiscard]] Tensor for_component(const Tensor& component, std::size_t index,
                                     std::size_t num_components) const;
  /// Whether both are the same number.
  [[nodiscard]] bool is_same_number(const VariableValue& other) const {
    return is_number() && other.is_number() && number_ == other.number_;
  }
  [[nodiscard]] bool is_zero() const;
  /// For messages: "5", "float32 (3) on CPU:0".
  [[nodiscard]] std::string to_string() const;

 private:
  enum class Kind : std::uint8_t { TENSOR, PER_REPLICA, MIRRORED, NUMBER };
  PerReplica components_;
  std::variant<double, std::int64_t, std::uint64_t> number_ = 0.0;
  Kind kind_;
};

}  // namespace crossdevice
