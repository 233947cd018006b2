// SPDX-License-Identifier: Apache-2.0
// The thread's stack of contexts, and the questions about it.
#include "crossdevice/strategy/strategy_context.h"

#include <exception>
#include <string>
#include <utility>

#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/strategy/strategy.h"

#include "strategy/detail/context_frame.h"
#include "strategy/detail/default_strategy.h"

namespace crossdevice {

namespace detail {

ContextFrame*& newest_frame() {
  thread_local ContextFrame* newest = nullptr;
  return newest;
}

const ContextFrame* current_frame() {
  const ContextFrame* frame = newest_frame();
  return frame != nullptr && frame->kind != ContextKind::DEFAULT_SCOPE ? frame : nullptr;
}

namespace {

constexpr const char* kMixing =
    "Mixing different strategies: the thread is in the scope of another strategy";

}  // namespace

void require_cross_replica_or_default(const StrategyExtended& extended, const char* method) {
  const ContextFrame* frame = current_frame();
  if (frame == nullptr) return;
  if (frame->extended != &extended) {
    throw FailedPreconditionError(std::string(method) + ": " + kMixing);
  }
  if (frame->kind == ContextKind::REPLICA) {
    throw FailedPreconditionError(
        std::string(method) +
        " needs cross-replica context, and this thread is inside a replica: call it in the "
        "function given to ReplicaContext::merge_call, or outside run");
  }
}

void require_not_inside_run(const StrategyExtended& extended) {
  for (const ContextFrame* frame = newest_frame(); frame != nullptr; frame = frame->previous) {
    if (frame->kind == ContextKind::REPLICA && frame->extended == &extended) {
      throw FailedPreconditionError(
          "run: this thread serves a run of the same strategy already; it would wait for itself");
    }
  }
}

void require_no_other_scope(const StrategyExtended& extended) {
  for (const ContextFrame* frame = newest_frame(); frame != nullptr; frame = frame->previous) {
    if (frame->extended != &extended) throw FailedPreconditionError(kMixing);
  }
}

}  // namespace detail

bool in_cross_replica_context() {
  const detail::ContextFrame* frame = detail::current_frame();
  return frame != nullptr && frame->kind == detail::ContextKind::CROSS_REPLICA;
}

ReplicaContext* get_replica_context() {
  const detail::ContextFrame* frame = detail::current_frame();
  return frame != nullptr ? frame->replica : &detail::default_replica_context();
}

Strategy& get_strategy() {
  const detail::ContextFrame* frame = detail::current_frame();
  return frame != nullptr ? *frame->strategy : detail::default_strategy();
}

bool has_strategy() {
  const detail::ContextFrame* frame = detail::current_frame();
  return frame != nullptr && frame->strategy != &detail::default_strategy();
}

StrategyScope::StrategyScope(Strategy& strategy)
    : frame_(std::make_unique<detail::ContextFrame>()) {
  const bool is_default = &strategy == &detail::default_strategy();
  const detail::ContextFrame* current = detail::current_frame();
  if (current != nullptr) {
    detail::require_cross_replica_or_default(strategy.extended(), "scope");
  }
  frame_->strategy = &strategy;
  frame_->extended = &strategy.extended();
  frame_->kind =
      is_default ? detail::ContextKind::DEFAULT_SCOPE : detail::ContextKind::CROSS_REPLICA;
  frame_->previous = std::exchange(detail::newest_frame(), frame_.get());
}

void StrategyScope::leave() {
  if (frame_ == nullptr) return;
  if (detail::newest_frame() != frame_.get()) {
    bool entered_here = false;
    for (const detail::ContextFrame* frame = detail::newest_frame(); frame != nullptr;
         frame = frame->previous) {
      entered_here = entered_here || frame == frame_.get();
    }
    throw FailedPreconditionError(
        entered_here
            ? "a strategy's scope is left while a context that was entered later is still open"
            : "a strategy's scope is left on another thread than it was entered on");
  }
  detail::newest_frame() = frame_->previous;
  frame_.reset();
}

StrategyScope::~StrategyScope() {
  try {
    leave();
  } catch (const std::exception& error) {
    log(LogSeverity::FAILURE, error.what());
    // Unlinked where it can be; a frame of another thread stays in that thread's stack and must outlive it.
    for (detail::ContextFrame** link = &detail::newest_frame(); *link != nullptr;
         link = &(*link)->previous) {
      if (*link == frame_.get()) {
        *link = frame_->previous;
        return;
      }
    }
    (void)frame_.release();
  }
}

}  // namespace crossdevice
