// SPDX-License-Identifier: Apache-2.0
/// A variable whose components are equal after every assignment. TF counterpart: MirroredVariable (synchronization ON_WRITE).
#pragma once

#include "crossdevice/core/export.h"
#include "crossdevice/strategy/distributed_variable.h"

namespace crossdevice {

/// read(): the replica's component, outside replicas the first one.
///
/// Assigning outside replicas gives every component the value (a Mirrored: each its own component).
/// Assigning inside a replica is a call that every replica makes, like all_reduce; the replicas' values are combined first:
///   SUM, MEAN            reduced. The same number in every replica: MEAN takes it as it is, SUM refuses all but 0 (with several workers, which
///                        cannot see each other's numbers, it adds them up).
///   ONLY_FIRST_REPLICA   replica 0's value
///   NONE                 ValueError, with more than one replica
/// Errors   ValueError: a PerReplica assigned outside replicas (they would differ from then on).
/// TF       since TF 2.4 NONE silently lets the components diverge; here it is the error that TF documents.
class CROSSDEVICE_EXPORT MirroredVariable : public DistributedVariable {
 public:
  /// options.synchronization is AUTO or ON_WRITE.
  MirroredVariable(Strategy& strategy, const Tensor& initial_value,
                   const VariableOptions& options = {});
  MirroredVariable(const MirroredVariable&) = default;
  MirroredVariable& operator=(const MirroredVariable&) = default;
  ~MirroredVariable() override;

  [[nodiscard]] Tensor read() const override;
  /// The components as the equal values that they are.
  [[nodiscard]] Mirrored mirrored() const { return Mirrored(components().values()); }

 protected:
  void update(detail::VariableUpdate update, const VariableValue& value) override;

 private:
  class Assignment;
};

}  // namespace crossdevice
