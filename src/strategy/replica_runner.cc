// SPDX-License-Identifier: Apache-2.0
// Runs the replicas, and carries out their rounds through the strategy's cross-device ops.
#include "strategy/detail/replica_runner.h"

#include <utility>

#include "crossdevice/core/error.h"
#include "crossdevice/device/shutdown.h"

#include "strategy/detail/context_frame.h"

namespace crossdevice::detail {

namespace {

/// Lets go of a round's handles however the round ends.
template <class... Vectors>
class ClearedAtExit {
 public:
  explicit ClearedAtExit(Vectors&... vectors) : vectors_(vectors...) {}
  ~ClearedAtExit() {
    std::apply([](Vectors&... vectors) { (vectors.clear(), ...); }, vectors_);
  }
  ClearedAtExit(const ClearedAtExit&) = delete;
  ClearedAtExit& operator=(const ClearedAtExit&) = delete;

 private:
  std::tuple<Vectors&...> vectors_;
};

/// Gives each replica its component of every result.
void hand_out(std::span<const Mirrored> results, std::span<ReplicaCall* const> calls) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].size() != calls.size()) {
      throw InternalError("the cross-device ops returned " + std::to_string(results[i].size()) +
                          " components for " + std::to_string(calls.size()) + " replicas");
    }
    for (std::size_t r = 0; r < calls.size(); ++r) {
      const ReplicaLeaf& leaf = calls[r]->description().leaves[i];
      if (results[i].is_sparse() != (leaf.slices != nullptr)) {
        throw InternalError("the cross-device ops returned " + results[i].to_string() +
                            " for value " + std::to_string(i) + ", which is " +
                            (leaf.slices != nullptr ? "sparse" : "dense"));
      }
      if (results[i].is_sparse()) {
        *leaf.slices_result = results[i].slices()[r];
      } else {
        *leaf.tensor_result = results[i].values()[r];
      }
    }
  }
}

}  // namespace

ReplicaRunner::ReplicaRunner(Strategy& strategy)
    : strategy_(strategy),
      rendezvous_({.num_replicas = strategy.extended().worker_devices().size(),
                   .first_replica_id = strategy.extended().first_replica_id()}),
      threads_(strategy.extended().worker_devices().size()) {
  const Devices& devices = strategy.extended().worker_devices();
  for (std::size_t r = 0; r < devices.size(); ++r) {
    contexts_.emplace_back(*this, strategy, r, strategy.extended().first_replica_id() + r,
                           devices[r]);
  }
}

void ReplicaRunner::run(const ReplicaBody& body) {
  const std::lock_guard turn(run_mutex_);
  rendezvous_.begin();
  auto serve = [&](std::size_t r) {
    try {
      const ScopedFrame frame({.strategy = &strategy_,
                               .extended = &strategy_.extended(),
                               .replica = &contexts_[r],
                               .kind = ContextKind::REPLICA});
      body(contexts_[r], r);
    } catch (...) {
      if (!is_forked_child()) rendezvous_.leave(r, std::current_exception());
      return;
    }
    if (!is_forked_child()) rendezvous_.leave(r);  // there the lock may be held for ever
  };
  threads_.run(ChunkBody(serve));
  require_not_forked();  // a replica's error is lost in a child, and its result may be missing
  if (const std::exception_ptr error = rendezvous_.take_first_error())
    std::rethrow_exception(error);
}

PerReplica ReplicaRunner::value_of(std::span<ReplicaCall* const> calls, std::size_t leaf) {
  if (calls[0]->description().leaves[leaf].slices != nullptr) {
    std::vector<IndexedSlices> slices;
    for (const ReplicaCall* call : calls)
      slices.push_back(*call->description().leaves[leaf].slices);
    return PerReplica(std::move(slices));
  }
  const ClearedAtExit cleared(tensors_);
  for (const ReplicaCall* call : calls) {
    tensors_.push_back(*call->description().leaves[leaf].tensor);
  }
  return PerReplica(std::span<const Tensor>(tensors_));
}

void ReplicaRunner::all_reduce(std::span<ReplicaCall* const> calls) {
  const CallDescription& description = calls[0]->description();
  if (description.leaves.empty()) return;
  const ClearedAtExit cleared(pairs_);
  const Destinations destinations(extended().worker_devices());
  for (std::size_t i = 0; i < description.leaves.size(); ++i) {
    pairs_.push_back({value_of(calls, i), destinations});
  }
  hand_out(
      extended().batch_reduce_to_implementation(description.op, pairs_, remaining_options(calls)),
      calls);
}

void ReplicaRunner::all_reduce_into(std::span<ReplicaCall* const> calls) {
  const CallDescription& description = calls[0]->description();
  if (description.leaves.empty()) return;
  CrossDeviceOps& ops = extended().cross_device_ops();
  if (description.leaves.size() == 1) {  // the form that allocates nothing
    const PerReplica value = value_of(calls, 0);
    ops.reduce_into(description.op, value, value, remaining_options(calls));
    return;
  }
  const ClearedAtExit cleared(values_);
  for (std::size_t i = 0; i < description.leaves.size(); ++i) {
    values_.push_back(value_of(calls, i));
  }
  ops.batch_reduce_into(description.op, std::span<const PerReplica>(values_),
                        remaining_options(calls));
}

void ReplicaRunner::all_gather(std::span<ReplicaCall* const> calls) {
  const CallDescription& description = calls[0]->description();
  const Destinations destinations(extended().worker_devices());
  std::vector<Mirrored> results;
  for (std::size_t i = 0; i < description.leaves.size(); ++i) {
    results.push_back(extended().gather_to_implementation(
        value_of(calls, i), destinations, description.axis, remaining_options(calls)));
  }
  hand_out(results, calls);
}

}  // namespace crossdevice::detail
