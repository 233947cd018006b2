// SPDX-License-Identifier: Apache-2.0
/// What a replica sees of the others. TF counterpart: tf.distribute.ReplicaContext.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "crossdevice/core/export.h"
#include "crossdevice/device/device.h"
#include "crossdevice/ops/communication_options.h"
#include "crossdevice/strategy/distributed_variable.h"
#include "crossdevice/strategy/merge_call.h"
#include "crossdevice/strategy/reduce_op_argument.h"
#include "crossdevice/strategy/replica_nest.h"

namespace crossdevice {

class Strategy;

namespace detail {
class ReplicaCall;
class ReplicaRunner;
}  // namespace detail

/// One replica inside Strategy::run. The calls below are collective: every replica makes the same ones in the same order, and each waits for
/// the others.
///
/// Shapes   op, number of values, dtypes, shapes and options are equal on all replicas (all_gather: equal but along the axis; sparse values: any
///          number of rows).
/// Memory   results are new tensors on device(); the *_into forms write the replica's own.
/// Order    complete on return, on host devices.
/// Errors   ValueError, on every replica: they made different calls; names both sides. Nothing was changed; the replicas may go on.
///          ValueError also as the strategy's cross-device ops.
///          DeadlineExceededError: options.timeout_seconds (the strategy's, for calls without options and assignments to variables) passed before
///          every replica came; names those that did not. AbortedError: another replica failed, or gave up waiting; every later call of
///          this run throws it too.
///          FailedPreconditionError: not on the thread that runs this replica, or inside merge_call.
/// Threads  the replica's own.
/// TF       different calls hang there. In-place forms are an addition.
class CROSSDEVICE_EXPORT ReplicaContext {
 public:
  /// For strategies; everybody else gets one from run or get_replica_context().
  ReplicaContext(detail::ReplicaRunner& runner, Strategy& strategy, std::size_t local_id,
                 std::size_t id, const Device& device);
  ReplicaContext(const ReplicaContext&) = delete;
  ReplicaContext& operator=(const ReplicaContext&) = delete;

  /// 0 to num_replicas_in_sync() - 1.
  [[nodiscard]] std::size_t replica_id_in_sync_group() const { return id_; }
  [[nodiscard]] std::size_t num_replicas_in_sync() const;
  [[nodiscard]] const Device& device() const { return device_; }
  [[nodiscard]] Strategy& strategy() const { return strategy_; }

  /// The reduced value in the same structure; `Nest` is Tensor, IndexedSlices, std::vector<Tensor>, any nest of them.
  template <TensorStructure Nest>
  [[nodiscard]] Nest all_reduce(ReduceOpArgument op, const Nest& value,
                                const CommunicationOptions& options = {}) {
    Nest result = value;
    collect(result, "all_reduce");
    all_reduce_leaves(op.op(), options);
    return result;
  }
  [[nodiscard]] std::vector<Tensor> all_reduce(ReduceOpArgument op, std::span<const Tensor> values,
                                               const CommunicationOptions& options = {}) {
    return all_reduce(op, std::vector<Tensor>(values.begin(), values.end()), options);
  }
  /// Of the replica's component.
  [[nodiscard]] Tensor all_reduce(ReduceOpArgument op, const Variable& variable,
                                  const CommunicationOptions& options = {});

  /// In place: every tensor of the nest, all dense, becomes the reduced one.
  template <TensorStructure Nest>
  void all_reduce_into(ReduceOpArgument op, const Nest& value,
                       const CommunicationOptions& options = {}) {
    collect(value, "all_reduce_into");
    all_reduce_leaves_into(op.op(), options);
  }
  void all_reduce_into(ReduceOpArgument op, std::span<const Tensor> values,
                       const CommunicationOptions& options = {});

  /// The replicas' tensors concatenated along `axis`, in replica order.
  ///
  /// Errors   also UnimplementedError: IndexedSlices in the nest.
  template <TensorStructure Nest>
  [[nodiscard]] Nest all_gather(const Nest& value, int axis,
                                const CommunicationOptions& options = {}) {
    Nest result = value;
    collect(result, "all_gather");
    all_gather_leaves(axis, options);
    return result;
  }

  /// Calls fn(strategy, args...) once, in cross-replica context, on one of the replicas' threads, when every replica has come: replica 0's
  /// fn, with the replicas' arguments regrouped (a Tensor: PerReplica; nests of them likewise; any other T: std::vector<T>; a variable: itself).
  /// A replica gets its own part of a PerReplica or Mirrored result, or nests of them, else a copy of the result.
  ///
  /// Errors   also what fn throws, on every replica.
  template <class F, class... Args>
  auto merge_call(F&& fn, const Args&... args) {
    detail::MergeCall<std::remove_reference_t<F>, Args...> call(fn, args...);
    run_merge_call(call);
    return call.take_result();
  }

  /// Calls fn(component, args...) for each component of `variable`, with that replica's arguments, when every replica has come. The replicas name
  /// the same variable.
  ///
  /// Errors   also ValueError: a variable of another strategy.
  template <class F, class... Args>
  void update(const DistributedVariable& variable, F&& fn, const Args&... args);

 private:
  friend class MirroredVariable;

  template <class Nest>
  void collect(Nest& nest, const char* method) {
    begin_call(method);
    detail::TensorNest<std::remove_const_t<Nest>>::collect(nest, leaves_);
  }
  void all_reduce_leaves(ReduceOp op, const CommunicationOptions& options);
  void all_reduce_leaves_into(ReduceOp op, const CommunicationOptions& options);
  void all_gather_leaves(int axis, const CommunicationOptions& options);
  void run_merge_call(detail::MergeCallBase& call);
  void run_update(const DistributedVariable& variable, detail::MergeCallBase& call);
  [[nodiscard]] CommunicationOptions merged_options(const CommunicationOptions& options) const;
  void require_tensors(const char* method) const;
  /// Before leaves_ are touched: another thread's call must not disturb the one that this replica waits in.
  void begin_call(const char* method);
  /// Errors   FailedPreconditionError: the calling thread does not run this replica, or is in cross-replica context.
  void require_here(const char* method) const;
  /// Makes the call together with the other replicas.
  void meet(detail::ReplicaCall& call);

  detail::ReplicaRunner& runner_;
  Strategy& strategy_;
  std::size_t local_id_;
  std::size_t id_;
  Device device_;
  std::vector<detail::ReplicaLeaf>
      leaves_;  // of the call being made; kept so that steps allocate nothing
};

template <class F, class... Args>
void ReplicaContext::update(const DistributedVariable& variable, F&& fn, const Args&... args) {
  const std::span<const Tensor> components = variable.components().values();
  const auto update_all = [&](Strategy&, const auto&... merged) {
    for (std::size_t r = 0; r < components.size(); ++r) {
      VariableComponent component(components[r], r, components.size());
      fn(component, detail::MergedArgument<std::decay_t<const Args&>>::part(merged, r)...);
    }
  };
  detail::MergeCall<decltype(update_all), Args...> call(update_all, args...);
  run_update(variable, call);
}

}  // namespace crossdevice
