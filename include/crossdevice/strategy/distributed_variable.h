// SPDX-License-Identifier: Apache-2.0
/// A variable with one component per replica's device. TF counterpart: DistributedVariable, tf.VariableSynchronization.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "crossdevice/core/export.h"
#include "crossdevice/ops/variable.h"
#include "crossdevice/strategy/variable_component.h"
#include "crossdevice/strategy/variable_value.h"

namespace crossdevice {

class ReplicaContext;
class Strategy;
class StrategyExtended;

/// When the components are brought together: at each assignment (AUTO means this), or when the variable is read across replicas.
enum class VariableSynchronization : std::uint8_t { AUTO, NONE, ON_WRITE, ON_READ };
[[nodiscard]] CROSSDEVICE_EXPORT std::string_view to_string(
    VariableSynchronization synchronization);

struct VariableOptions {
  std::string name = "Variable";
  VariableAggregation aggregation = VariableAggregation::NONE;
  VariableSynchronization synchronization = VariableSynchronization::AUTO;
};

/// What both kinds share. A handle: copies are the same variable.
///
/// Shapes   an assigned value has the variable's dtype and shape; a number is a scalar of any dtype.
/// Ranks    with several workers all make the same variables in the same order, with the chief's initial value. An assignment outside replicas changes
///          this worker's components: every worker makes it.
/// Memory   read() in a replica is a read-only handle on the component: later assignments show through it.
/// Errors   FailedPreconditionError: in the context of another strategy. The rest is said by each kind.
/// Threads  a replica touches its own component; assignments from one thread outside run.
class CROSSDEVICE_EXPORT DistributedVariable : public Variable {
 public:
  ~DistributedVariable() override;

  [[nodiscard]] VariableSynchronization synchronization() const { return synchronization_; }
  /// The strategy's part that the variable was made in.
  [[nodiscard]] StrategyExtended& extended() const { return *extended_; }

  [[nodiscard]] virtual Tensor read() const = 0;
  void assign(const VariableValue& value) { update(detail::VariableUpdate::ASSIGN, value); }
  void assign_add(const VariableValue& value) { update(detail::VariableUpdate::ASSIGN_ADD, value); }
  void assign_sub(const VariableValue& value) { update(detail::VariableUpdate::ASSIGN_SUB, value); }

 protected:
  /// Errors   ValueError: no initial value, or Variable's; other workers make another variable. FailedPreconditionError: the thread is in another strategy's scope, or inside a replica.
  DistributedVariable(Strategy& strategy, const Tensor& initial_value,
                      const VariableOptions& options, VariableSynchronization synchronization);
  DistributedVariable(const DistributedVariable&) = default;
  DistributedVariable& operator=(const DistributedVariable&) = default;

  virtual void update(detail::VariableUpdate update, const VariableValue& value) = 0;
  /// The replica of this strategy that the calling thread runs; nullptr in cross-replica and default context.
  ///
  /// Errors   FailedPreconditionError: in another strategy's context.
  [[nodiscard]] ReplicaContext* replica_context() const;
  /// Which component is that replica's.
  [[nodiscard]] std::size_t local_id(const ReplicaContext& context) const;
  /// Applies the update to every component.
  void update_components(detail::VariableUpdate update, const VariableValue& value) const;
  /// components().values()[index], read-only.
  [[nodiscard]] const Tensor& read_component(std::size_t index) const {
    return read_only_.values()[index];
  }

 private:
  static PerReplica make_components(const Strategy& strategy, const Tensor& initial_value,
                                    const VariableOptions& options);

  std::shared_ptr<StrategyExtended> extended_;
  VariableSynchronization synchronization_;
  PerReplica read_only_;
};

}  // namespace crossdevice
