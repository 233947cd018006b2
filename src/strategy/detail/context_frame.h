// SPDX-License-Identifier: Apache-2.0
/// The stack of contexts a thread is in: scopes, replicas, merge calls, updates.
#pragma once

#include <cstdint>

#include "crossdevice/strategy/strategy_context.h"
#include "crossdevice/strategy/strategy_extended.h"

namespace crossdevice::detail {

enum class ContextKind : std::uint8_t { DEFAULT_SCOPE, CROSS_REPLICA, REPLICA };

/// A link of the calling thread's stack, newest first.
struct ContextFrame {
  Strategy* strategy = nullptr;
  const StrategyExtended* extended = nullptr;
  ReplicaContext* replica = nullptr;  ///< set exactly in a REPLICA frame
  ContextKind kind = ContextKind::CROSS_REPLICA;
  ContextFrame* previous = nullptr;
};

/// The calling thread's newest frame; nullptr: it never entered anything.
[[nodiscard]] ContextFrame*& newest_frame();
/// The frame that says where the thread is; nullptr in the default context (outside everything, or right inside the default strategy's scope).
[[nodiscard]] const ContextFrame* current_frame();

/// Frames that nest by construction.
class ScopedFrame {
 public:
  explicit ScopedFrame(const ContextFrame& frame) : frame_(frame) {
    frame_.previous = newest_frame();
    newest_frame() = &frame_;
  }
  ~ScopedFrame() { newest_frame() = frame_.previous; }
  ScopedFrame(const ScopedFrame&) = delete;
  ScopedFrame& operator=(const ScopedFrame&) = delete;

 private:
  ContextFrame frame_;
};

/// Errors   FailedPreconditionError: the thread is inside a replica, or in another strategy's context.
void require_cross_replica_or_default(const StrategyExtended& extended, const char* method);
/// Errors   FailedPreconditionError: the thread serves a run of this strategy at any depth: a run inside a run would wait for itself.
void require_not_inside_run(const StrategyExtended& extended);
/// Errors   FailedPreconditionError: a scope of another strategy is open, be it further out.
void require_no_other_scope(const StrategyExtended& extended);

}  // namespace crossdevice::detail
