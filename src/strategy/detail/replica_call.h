// SPDX-License-Identifier: Apache-2.0
/// One replica's half of a collective call: what it asks for, and how all halves are carried out together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>

#include "crossdevice/core/deadline.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/ops/communication_options.h"
#include "crossdevice/strategy/replica_nest.h"

namespace crossdevice::detail {

enum class CallKind : std::uint8_t {
  ALL_REDUCE,
  ALL_REDUCE_INTO,
  ALL_GATHER,
  MERGE_CALL,
  UPDATE,
  ASSIGN,
  ASSIGN_ADD,
  ASSIGN_SUB,
};
/// "all_reduce", ...
[[nodiscard]] const char* to_string(CallKind kind);

/// What must be equal on all replicas. Borrowed: lives as long as the replica waits.
struct CallDescription {
  CallKind kind = CallKind::ALL_REDUCE;
  ReduceOp op = ReduceOp::SUM;  ///< all_reduce, all_reduce_into
  int axis = 0;                 ///< all_gather
  std::span<const ReplicaLeaf> leaves{};
  const CommunicationOptions* options = nullptr;
  const std::type_info* type = nullptr;  ///< merge_call, update: of its function and arguments
  const void* variable = nullptr;        ///< update, assignments: the variable's identity
  std::string_view variable_name{};
};

/// A description, and the code that runs when every replica has come.
class ReplicaCall {
 public:
  explicit ReplicaCall(const CallDescription& description, const Deadline& deadline)
      : description_(description), deadline_(deadline) {}
  virtual ~ReplicaCall() = default;
  ReplicaCall(const ReplicaCall&) = delete;
  ReplicaCall& operator=(const ReplicaCall&) = delete;

  /// Carries out all `calls`, in replica order; they are of this one's kind and agree in their descriptions. Runs on one thread while the other
  /// replicas wait, so it may read and write what their calls point to.
  virtual void execute(std::span<ReplicaCall* const> calls) = 0;

  [[nodiscard]] const CallDescription& description() const { return description_; }
  /// Until when this replica waits for the others.
  [[nodiscard]] const Deadline& deadline() const { return deadline_; }
  /// The how-manieth call of its replica in this run it is, from 1.
  [[nodiscard]] std::uint64_t sequence() const { return sequence_; }
  void set_sequence(std::uint64_t sequence) { sequence_ = sequence; }
  /// "all_reduce #3 (SUM, 4 values)".
  [[nodiscard]] std::string to_string() const;

 private:
  CallDescription description_;
  Deadline deadline_;
  std::uint64_t sequence_ = 0;
};

/// The calls' options, with what is left of the earliest deadline as their timeout: waiting for the replicas has used up the rest.
[[nodiscard]] CommunicationOptions remaining_options(std::span<ReplicaCall* const> calls);
/// Options with what is left until the deadline as their timeout; never: as they are.
[[nodiscard]] CommunicationOptions limited(CommunicationOptions options, const Deadline& deadline);

/// Errors   ValueError "the replicas made different calls: replica 0 called all_reduce #3 (SUM, 4 values), replica 1 called all_gather #3
///          (axis 0, 1 value)"; replica k is called first_replica_id + k.
void require_same_calls(std::span<ReplicaCall* const> calls, std::size_t first_replica_id);

}  // namespace crossdevice::detail
