// SPDX-License-Identifier: Apache-2.0
/// Which strategy the calling thread is in, and how. TF counterparts: tf.distribute.get_strategy, get_replica_context,
/// in_cross_replica_context, has_strategy, Strategy.scope.
///
/// A thread is in one of three contexts: a replica's (inside run), cross-replica (inside scope(), merge_call and update), or the default one, where
/// a strategy of one replica on CPU:0 stands in and both kinds of calls work.
#pragma once

#include <memory>

#include "crossdevice/core/export.h"

namespace crossdevice {

class ReplicaContext;
class Strategy;

namespace detail {
struct ContextFrame;
}

/// Whether the thread is inside scope(), merge_call or update. False in the default context, as in TF.
[[nodiscard]] CROSSDEVICE_EXPORT bool in_cross_replica_context();
/// The replica's context; the default one outside any scope; nullptr in cross-replica context.
[[nodiscard]] CROSSDEVICE_EXPORT ReplicaContext* get_replica_context();
/// The strategy of the context; the default one outside any scope.
[[nodiscard]] CROSSDEVICE_EXPORT Strategy& get_strategy();
/// Whether the thread is inside a strategy other than the default one.
[[nodiscard]] CROSSDEVICE_EXPORT bool has_strategy();

/// The calling thread is in `strategy`'s cross-replica context while this lives. What Strategy::scope() returns.
///
/// The same strategy may be entered again. The default strategy's scope changes nothing, but variables of other strategies cannot be made in it.
/// Errors   constructor: FailedPreconditionError: the thread is in another strategy's scope ("Mixing different strategies"), or inside a replica.
///          leave(): FailedPreconditionError: a scope entered later is still open, or another thread entered this one.
///          The destructor does what leave() does, but only logs such an error.
class CROSSDEVICE_EXPORT StrategyScope {
 public:
  explicit StrategyScope(Strategy& strategy);
  ~StrategyScope();
  StrategyScope(const StrategyScope&) = delete;
  StrategyScope& operator=(const StrategyScope&) = delete;

  void leave();

 private:
  std::unique_ptr<detail::ContextFrame> frame_;
};

}  // namespace crossdevice
