// SPDX-License-Identifier: Apache-2.0
/// A variable whose components go their own ways until it is read across replicas. TF counterpart: SyncOnReadVariable (ON_READ).
#pragma once

#include "crossdevice/core/export.h"
#include "crossdevice/strategy/distributed_variable.h"

namespace crossdevice {

/// read(): inside a replica its component; outside replicas a new tensor, the components combined by the aggregation (MEAN, SUM: reduced;
/// ONLY_FIRST_REPLICA: component 0; NONE: ValueError), with several workers those of all of them: a call that every worker makes.
///
/// Assigning inside a replica changes its component alone, without waiting for anybody. Outside replicas:
///   assign        with SUM each component gets value / num_replicas, so that read() gives the value back (integers: the
///                 remainder goes to the first component); else each gets the value, or its part of a distributed one
///   assign_add, assign_sub   to every component; with SUM a ValueError, as n times the value would be added
/// TF       integers divided by the number of replicas are truncated there.
class CROSSDEVICE_EXPORT SyncOnReadVariable : public DistributedVariable {
 public:
  /// options.synchronization is AUTO or ON_READ.
  SyncOnReadVariable(Strategy& strategy, const Tensor& initial_value,
                     const VariableOptions& options = {});
  SyncOnReadVariable(const SyncOnReadVariable&) = default;
  SyncOnReadVariable& operator=(const SyncOnReadVariable&) = default;
  ~SyncOnReadVariable() override;

  [[nodiscard]] Tensor read() const override;

 protected:
  void update(detail::VariableUpdate update, const VariableValue& value) override;
};

}  // namespace crossdevice
