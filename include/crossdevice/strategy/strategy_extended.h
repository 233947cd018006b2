// SPDX-License-Identifier: Apache-2.0
/// What strategies do in cross-replica context, for library code. TF counterpart: tf.distribute.StrategyExtended.
#pragma once

#include <cstddef>
#include <exception>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "crossdevice/core/export.h"
#include "crossdevice/ops/cross_device_ops.h"
#include "crossdevice/ops/regroup.h"
#include "crossdevice/strategy/distributed_variable.h"
#include "crossdevice/strategy/input_context.h"
#include "crossdevice/strategy/reduce_op_argument.h"
#include "crossdevice/strategy/replica_nest.h"

namespace crossdevice {

namespace detail {

class ReplicaRunner;
struct ContextFrame;

/// Where a strategy's replicas are and how they communicate.
struct StrategyConfiguration {
  Devices devices;  ///< of this process's replicas, in replica order
  std::shared_ptr<CrossDeviceOps> cross_device_ops;
  CommunicationOptions communication_options{};  ///< each call's options are merged into these
  std::size_t num_replicas_in_sync = 0;          ///< of all workers
  std::size_t first_replica_id = 0;              ///< of this process
  std::size_t num_workers = 1;
  std::size_t worker_rank = 0;  ///< of this process
};

/// The calling thread is inside update() while this lives.
class CROSSDEVICE_EXPORT UpdateContext {
 public:
  /// Errors   FailedPreconditionError: not a context that updates from; ValueError: a variable of another strategy.
  UpdateContext(const StrategyExtended& extended, const DistributedVariable& variable);
  ~UpdateContext();
  UpdateContext(const UpdateContext&) = delete;
  UpdateContext& operator=(const UpdateContext&) = delete;

 private:
  std::unique_ptr<ContextFrame> frame_;
};

}  // namespace detail

/// Everything here is for cross-replica context (scope(), merge_call) or outside any scope.
///
/// Ranks    with several workers, what reduces or gathers is collective: every worker makes the same calls in the same order.
/// Errors   FailedPreconditionError: inside a replica (use merge_call), or in another strategy's scope. ValueError and the rest: as the
///          cross-device ops.
class CROSSDEVICE_EXPORT StrategyExtended {
 public:
  explicit StrategyExtended(detail::StrategyConfiguration configuration);
  virtual ~StrategyExtended();
  StrategyExtended(const StrategyExtended&) = delete;
  StrategyExtended& operator=(const StrategyExtended&) = delete;

  /// The devices of this process's replicas.
  [[nodiscard]] const Devices& worker_devices() const { return configuration_.devices; }
  /// The devices that variables have components on.
  [[nodiscard]] const Devices& parameter_devices() const { return configuration_.devices; }
  [[nodiscard]] std::size_t num_replicas_in_sync() const {
    return configuration_.num_replicas_in_sync;
  }
  /// The replica id of this process's first replica.
  [[nodiscard]] std::size_t first_replica_id() const { return configuration_.first_replica_id; }
  /// Processes that train together.
  [[nodiscard]] std::size_t num_workers() const { return configuration_.num_workers; }
  /// Whether this process writes what is written once: the chief alone does.
  [[nodiscard]] bool should_checkpoint() const { return configuration_.worker_rank == 0; }
  [[nodiscard]] bool should_save_summary() const { return configuration_.worker_rank == 0; }
  /// This worker's share of the input: one pipeline per worker.
  [[nodiscard]] InputContext make_input_context() const {
    return {.num_input_pipelines = configuration_.num_workers,
            .input_pipeline_id = configuration_.worker_rank,
            .num_replicas_in_sync = configuration_.num_replicas_in_sync};
  }
  [[nodiscard]] CrossDeviceOps& cross_device_ops() const {
    return *configuration_.cross_device_ops;
  }
  [[nodiscard]] const CommunicationOptions& communication_options() const {
    return configuration_.communication_options;
  }

  /// The strategy's cross-device ops reduce `value`; always the chosen ones.
  [[nodiscard]] Mirrored reduce_to(ReduceOpArgument op, const PerReplica& value,
                                   const Destinations& destinations,
                                   const CommunicationOptions& options = {});
  /// Of equal values: MEAN, MIN and MAX are the value itself, copied to the destinations. SUM and PROD need one replica or a value of zeros
  /// (ValueError): adding up what is equal already is hardly ever meant.
  [[nodiscard]] Mirrored reduce_to(ReduceOpArgument op, const Mirrored& value,
                                   const Destinations& destinations,
                                   const CommunicationOptions& options = {});
  /// One worker: as a Mirrored. Several: each worker's own tensor, combined across the workers.
  [[nodiscard]] Mirrored reduce_to(ReduceOpArgument op, const Tensor& value,
                                   const Destinations& destinations,
                                   const CommunicationOptions& options = {});
  /// Its components, as they are.
  [[nodiscard]] Mirrored reduce_to(ReduceOpArgument op, const Variable& value,
                                   const Destinations& destinations,
                                   const CommunicationOptions& options = {});

  [[nodiscard]] std::vector<Mirrored> batch_reduce_to(ReduceOpArgument op,
                                                      std::span<const ValueDestinationPair> pairs,
                                                      const CommunicationOptions& options = {});
  [[nodiscard]] std::vector<Mirrored> batch_reduce_to(
      ReduceOpArgument op, std::initializer_list<ValueDestinationPair> pairs,
      const CommunicationOptions& options = {}) {
    return batch_reduce_to(op, std::span<const ValueDestinationPair>(pairs.begin(), pairs.size()),
                           options);
  }

  /// To devices of this process.
  [[nodiscard]] Mirrored broadcast_to(const Tensor& tensor, const Destinations& destinations);
  [[nodiscard]] Mirrored gather_to(const PerReplica& value, const Destinations& destinations,
                                   int axis, const CommunicationOptions& options = {});

  /// Calls fn(component, args...) for each component of `variable`, in order, on this thread, in update context. A component gets its own part
  /// of PerReplica and Mirrored arguments, and nests of them; others as they are. The results: Tensors as a Mirrored, others as a
  /// std::vector.
  template <class F, class... Args>
  auto update(const DistributedVariable& variable, F&& fn, const Args&... args) {
    (detail::require_one_per_replica_in<Args>(args, variable.components().size()), ...);
    const detail::UpdateContext context(*this, variable);
    const std::span<const Tensor> components = variable.components().values();
    const auto call = [&](std::size_t r) {
      VariableComponent component(components[r], r, components.size());
      return fn(component, detail::select_local<Args>(args, r)...);
    };
    using Result = decltype(call(0));
    if constexpr (std::is_void_v<Result>) {
      for (std::size_t r = 0; r < components.size(); ++r) call(r);
    } else {
      std::vector<Result> results;
      for (std::size_t r = 0; r < components.size(); ++r) results.push_back(call(r));
      return detail::Regroup<Result, Mirrored>::regroup(std::span<const Result>(results));
    }
  }

 protected:
  /// The hooks. The context is checked, the options are merged with the strategy's.
  virtual Mirrored reduce_to_implementation(ReduceOp op, const PerReplica& value,
                                            const Destinations& destinations,
                                            const CommunicationOptions& options);
  virtual std::vector<Mirrored> batch_reduce_to_implementation(
      ReduceOp op, std::span<const ValueDestinationPair> pairs,
      const CommunicationOptions& options);
  virtual Mirrored broadcast_to_implementation(const Tensor& tensor,
                                               const Destinations& destinations);
  virtual Mirrored gather_to_implementation(const PerReplica& value,
                                            const Destinations& destinations, int axis,
                                            const CommunicationOptions& options);
  /// Of a value that is equal on all replicas; `one` is its only component. Talks to nobody.
  virtual Mirrored reduce_equal_implementation(ReduceOp op, const PerReplica& one,
                                               const Destinations& destinations,
                                               const CommunicationOptions& options);
  /// The tensor of replica 0 of the whole job, given this process's first replica's. Equal dtypes and shapes everywhere.
  virtual Tensor first_replica_implementation(const Tensor& tensor,
                                              const CommunicationOptions& options);
  /// What a variable begins with, given what this process would begin with.
  virtual Tensor initial_value_implementation(const std::string& name, const Tensor& tensor);
  /// Errors   what has left an earlier run, where its workers cannot get back into step.
  virtual void require_usable();
  /// `error` leaves a run.
  virtual void announce_failure(const std::exception_ptr& error) noexcept;

 private:
  friend class detail::ReplicaRunner;
  friend class detail::UpdateContext;
  friend class DistributedVariable;
  friend class MirroredVariable;
  friend class Strategy;
  friend class SyncOnReadVariable;
  detail::StrategyConfiguration configuration_;
  Strategy* strategy_ = nullptr;  // set while it lives; variables may outlive it
};

}  // namespace crossdevice
