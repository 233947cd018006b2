// SPDX-License-Identifier: Apache-2.0
/// The replicas of this process under one strategy: their threads, contexts and meeting place.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <span>
#include <vector>

#include "crossdevice/strategy/replica_context.h"
#include "crossdevice/strategy/strategy.h"

#include "strategy/detail/replica_rendezvous.h"
#include "strategy/detail/replica_threads.h"

namespace crossdevice::detail {

class ReplicaRunner {
 public:
  explicit ReplicaRunner(Strategy& strategy);

  /// Strategy::run's compiled half. Calls from several threads take turns.
  void run(const ReplicaBody& body);
  [[nodiscard]] ReplicaContext& context(std::size_t local_id) { return contexts_[local_id]; }

  /// For the contexts: `call` is replica `local_id`'s next one.
  void call(std::size_t local_id, ReplicaCall& call) { rendezvous_.call(local_id, call); }
  [[nodiscard]] Strategy& strategy() const { return strategy_; }
  [[nodiscard]] StrategyExtended& extended() const { return strategy_.extended(); }

  // What executes a round, on one replica's thread, in cross-replica context:
  void all_reduce(std::span<ReplicaCall* const> calls);
  void all_reduce_into(std::span<ReplicaCall* const> calls);
  void all_gather(std::span<ReplicaCall* const> calls);

 private:
  [[nodiscard]] PerReplica value_of(std::span<ReplicaCall* const> calls, std::size_t leaf);

  Strategy& strategy_;
  std::mutex run_mutex_;
  ReplicaRendezvous rendezvous_;
  std::deque<ReplicaContext> contexts_;
  ReplicaThreads threads_;
  std::vector<ValueDestinationPair>
      pairs_;                       // of the round in progress; kept so that steps allocate nothing
  std::vector<PerReplica> values_;  // likewise
  std::vector<Tensor> tensors_;     // likewise
};

}  // namespace crossdevice::detail
