// SPDX-License-Identifier: Apache-2.0
/// Runs one computation on several replicas and brings their values together. TF counterpart: tf.distribute.Strategy.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "crossdevice/core/export.h"
#include "crossdevice/ops/regroup.h"
#include "crossdevice/strategy/axes.h"
#include "crossdevice/strategy/distributed_variable.h"
#include "crossdevice/strategy/reduce_op_argument.h"
#include "crossdevice/strategy/replica_context.h"
#include "crossdevice/strategy/replica_nest.h"
#include "crossdevice/strategy/strategy_context.h"
#include "crossdevice/strategy/strategy_extended.h"

namespace crossdevice {

namespace detail {

/// A borrowed callable `void(ReplicaContext&, std::size_t local_id)`: two pointers, no allocation.
class ReplicaBody {
 public:
  template <class F>
  requires std::is_invocable_v<F&, ReplicaContext&, std::size_t>
  explicit ReplicaBody(F& body)
      : object_(std::addressof(body)),
        call_([](void* object, ReplicaContext& context, std::size_t local_id) {
          (*static_cast<F*>(object))(context, local_id);
        }) {}
  void operator()(ReplicaContext& context, std::size_t local_id) const {
    call_(object_, context, local_id);
  }

 private:
  void* object_;
  void (*call_)(void*, ReplicaContext&, std::size_t);
};

/// What run makes of one R per replica: PerReplica of Tensors, std::vector<PerReplica> of std::vector<Tensor>s, else std::vector<R>.
template <class R>
struct RunResult {
  using type = std::vector<R>;
  static type collect(std::vector<std::optional<R>>&& results) {
    type collected;
    collected.reserve(results.size());
    for (std::optional<R>& result : results) collected.push_back(std::move(*result));
    return collected;
  }
};
template <class R>
requires std::same_as<R, Tensor> || std::same_as<R, std::vector<Tensor>>
struct RunResult<R> {
  using type = typename Regroup<R, PerReplica>::type;
  static type collect(std::vector<std::optional<R>>&& results) {
    std::vector<R> values;
    values.reserve(results.size());
    for (std::optional<R>& result : results) values.push_back(std::move(*result));
    return regroup(values);
  }
};
template <>
struct RunResult<void> {
  using type = void;
};

}  // namespace detail

/// Which replica a value is made for.
struct ValueContext {
  std::size_t replica_id_in_sync_group = 0;
  std::size_t num_replicas_in_sync = 1;
};

/// Ranks    with several workers, reduce, gather and make_variable are collective: every worker makes the same calls in the same order. run is not;
///          what its replicas call is.
/// Order    calls return when their results are there, on host devices.
/// Errors   FailedPreconditionError: all of these but scope() are for cross-replica context or outside any scope; see StrategyExtended.
/// Threads  calls of run are serialised; replicas run concurrently (TF runs them in turns): share nothing between them unguarded.
class CROSSDEVICE_EXPORT Strategy {
 public:
  virtual ~Strategy();
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  [[nodiscard]] std::size_t num_replicas_in_sync() const {
    return extended_->num_replicas_in_sync();
  }
  [[nodiscard]] StrategyExtended& extended() const { return *extended_; }
  /// The same, shared: what keeps working when the strategy is gone.
  [[nodiscard]] const std::shared_ptr<StrategyExtended>& shared_extended() const {
    return extended_;
  }
  /// Puts the calling thread into this strategy's cross-replica context until the result dies.
  [[nodiscard]] StrategyScope scope() { return StrategyScope(*this); }

  /// Calls fn(context, args...) once per replica, each on a thread of its own; replica 0's is the caller's. Of PerReplica and Mirrored arguments, and
  /// nests of them, a replica gets its own component; other arguments reach every replica as the same object.
  ///
  /// Result   one per replica: PerReplica for Tensor, std::vector<PerReplica> for std::vector<Tensor>, std::vector<R> for any other R.
  /// Errors   the first exception that leaves a replica; the others are released from their waits with AbortedError, on all workers, and workers
  ///          that begin to communicate later get it too. ValueError: an argument with
  ///          another number of components than there are replicas; vectors of different lengths returned. FailedPreconditionError: inside
  ///          one of this strategy's own runs.
  template <class F, class... Args>
  requires std::invocable<F&, ReplicaContext&, detail::ReplicaArgument<Args>...>
  auto run(F&& fn, Args&&... args) {
    using Returned = std::invoke_result_t<F&, ReplicaContext&, detail::ReplicaArgument<Args>...>;
    using R = std::remove_cvref_t<Returned>;
    (detail::require_one_per_replica_in<std::remove_cvref_t<Args>>(args, num_local_replicas()),
     ...);
    if constexpr (std::is_void_v<R>) {
      auto body = [&](ReplicaContext& context, [[maybe_unused]] std::size_t r) {
        std::invoke(fn, context, detail::replica_argument<Args>(args, r)...);
      };
      run_replicas(detail::ReplicaBody(body));
    } else {
      std::vector<std::optional<R>> results(num_local_replicas());
      auto body = [&](ReplicaContext& context, [[maybe_unused]] std::size_t r) {
        results[r].emplace(std::invoke(fn, context, detail::replica_argument<Args>(args, r)...));
      };
      run_replicas(detail::ReplicaBody(body));
      return detail::RunResult<R>::collect(std::move(results));
    }
  }

  /// One tensor on CPU:0: the replicas' values combined with each other and, given axes, each along these too. MEAN with axes divides the sum of all
  /// elements by their number: a weighted mean when replicas hold different numbers of them.
  ///
  /// Shapes   without axes equal; with axes they may differ along these.
  /// Errors   ValueError: an axis out of range or named twice; a value with another number of components than there are replicas; sparse values
  ///          with axes; MIN or MAX over no elements.
  [[nodiscard]] Tensor reduce(ReduceOpArgument op, const PerReplica& value, const Axes& axis);
  /// Of equal values: as StrategyExtended::reduce_to.
  [[nodiscard]] Tensor reduce(ReduceOpArgument op, const Mirrored& value, const Axes& axis);
  /// One worker: as a Mirrored. Several: each worker's own tensor, as if it were one replica's.
  [[nodiscard]] Tensor reduce(ReduceOpArgument op, const Tensor& value, const Axes& axis);
  [[nodiscard]] Tensor reduce(ReduceOpArgument op, const Variable& value, const Axes& axis);
  /// Each leaf of a nest.
  template <DistributedStructure Nest>
  requires(!std::derived_from<Nest, DistributedValues>)
      [[nodiscard]] auto reduce(ReduceOpArgument op, const Nest& nest, const Axes& axis) {
    return detail::DistributedNest<Nest>::map(
        nest, [&](const auto& leaf) { return reduce(op, leaf, axis); });
  }

  /// The replicas' tensors concatenated along `axis` (0 <= axis < rank), in replica order, on CPU:0.
  ///
  /// Errors   UnimplementedError: sparse values.
  [[nodiscard]] Tensor gather(const PerReplica& value, int axis);

  /// One structure per replica of this process, in replica order: PerReplica and Mirrored leaves taken apart, others repeated.
  template <class Nest>
  [[nodiscard]] std::vector<detail::LocalOf<Nest>> experimental_local_results(
      const Nest& nest) const {
    detail::require_one_per_replica_in<Nest>(nest, num_local_replicas());
    std::vector<detail::LocalOf<Nest>> results;
    results.reserve(num_local_replicas());
    for (std::size_t r = 0; r < num_local_replicas(); ++r) {
      results.push_back(detail::select_local<Nest>(nest, r));
    }
    return results;
  }

  /// The values of fn(ValueContext) for each replica of this process, made one after the other on this thread; regrouped as
  /// crossdevice::regroup does.
  template <class F>
  requires std::invocable<F&, const ValueContext&>
  [[nodiscard]] auto experimental_distribute_values_from_function(F&& fn) {
    require_cross_replica_context("experimental_distribute_values_from_function");
    std::vector<std::remove_cvref_t<std::invoke_result_t<F&, const ValueContext&>>> values;
    for (std::size_t r = 0; r < num_local_replicas(); ++r) {
      values.push_back(std::invoke(
          fn, ValueContext{extended_->first_replica_id() + r, extended_->num_replicas_in_sync()}));
    }
    return regroup(values);
  }

  /// A MirroredVariable (synchronization AUTO, ON_WRITE) or SyncOnReadVariable (ON_READ). With several workers it begins with the chief's value.
  ///
  /// Errors   ValueError: synchronization NONE; as DistributedVariable.
  [[nodiscard]] std::shared_ptr<DistributedVariable> make_variable(
      const Tensor& initial_value, const VariableOptions& options = {});

 protected:
  explicit Strategy(std::shared_ptr<StrategyExtended> extended);

 private:
  friend class detail::ReplicaRunner;
  [[nodiscard]] std::size_t num_local_replicas() const {
    return extended_->worker_devices().size();
  }
  void run_replicas(detail::ReplicaBody body);
  /// The values of this process's replicas, or of the whole process, combined along axes and with the others'.
  [[nodiscard]] Tensor reduce_axes(ReduceOp op, std::span<const Tensor> values, const Axes& axis);
  /// The same of a value that all replicas share.
  [[nodiscard]] Tensor reduce_equal_axes(ReduceOp op, const Tensor& value, const Axes& axis);
  void require_cross_replica_context(const char* method) const;

  std::shared_ptr<StrategyExtended> extended_;
  std::unique_ptr<detail::ReplicaRunner> runner_;
};

}  // namespace crossdevice
