// SPDX-License-Identifier: Apache-2.0
// The collective calls of a replica: checked here, carried out by the runner when all have come.
#include "crossdevice/strategy/replica_context.h"

#include <string>

#include "crossdevice/core/error.h"
#include "crossdevice/device/shutdown.h"
#include "crossdevice/strategy/strategy.h"

#include "strategy/detail/context_frame.h"
#include "strategy/detail/replica_runner.h"

namespace crossdevice {

namespace {

using detail::CallDescription;
using detail::CallKind;
using detail::ReplicaCall;
using detail::ReplicaRunner;

detail::ContextFrame cross_replica_frame(const ReplicaRunner& runner) {
  return {.strategy = &runner.strategy(), .extended = &runner.extended()};
}

/// all_reduce, all_reduce_into and all_gather.
class CollectiveCall final : public ReplicaCall {
 public:
  CollectiveCall(ReplicaRunner& runner, const CallDescription& description)
      : ReplicaCall(description, description.options->deadline()), runner_(runner) {}

  void execute(std::span<ReplicaCall* const> calls) override {
    const detail::ScopedFrame frame(cross_replica_frame(runner_));
    if (description().kind == CallKind::ALL_REDUCE) {
      runner_.all_reduce(calls);
    } else if (description().kind == CallKind::ALL_REDUCE_INTO) {
      runner_.all_reduce_into(calls);
    } else {
      runner_.all_gather(calls);
    }
  }

 private:
  ReplicaRunner& runner_;
};

/// merge_call and update.
class MergeRound final : public ReplicaCall {
 public:
  MergeRound(ReplicaRunner& runner, detail::MergeCallBase& merge, CallDescription description)
      : ReplicaCall(completed(description, runner, merge),
                    runner.extended().communication_options().deadline()),
        runner_(runner),
        merge_(merge) {}

  void execute(std::span<ReplicaCall* const> calls) override {
    const detail::ScopedFrame frame(cross_replica_frame(runner_));
    std::vector<detail::MergeCallBase*> merges;
    merges.reserve(calls.size());
    for (ReplicaCall* call : calls) merges.push_back(&static_cast<MergeRound*>(call)->merge_);
    merge_.execute(runner_.strategy(), merges);
  }

 private:
  static CallDescription completed(CallDescription description, const ReplicaRunner& runner,
                                   const detail::MergeCallBase& merge) {
    description.type = &merge.type();
    description.options = &runner.extended().communication_options();
    return description;
  }

  ReplicaRunner& runner_;
  detail::MergeCallBase& merge_;
};

}  // namespace

detail::MergeCallBase::~MergeCallBase() = default;

ReplicaContext::ReplicaContext(ReplicaRunner& runner, Strategy& strategy, std::size_t local_id,
                               std::size_t id, const Device& device)
    : runner_(runner), strategy_(strategy), local_id_(local_id), id_(id), device_(device) {}

std::size_t ReplicaContext::num_replicas_in_sync() const {
  return strategy_.num_replicas_in_sync();
}

Tensor ReplicaContext::all_reduce(ReduceOpArgument op, const Variable& variable,
                                  const CommunicationOptions& options) {
  return all_reduce(op, detail::local_component(variable.components(), local_id_), options);
}

void ReplicaContext::all_reduce_into(ReduceOpArgument op, std::span<const Tensor> values,
                                     const CommunicationOptions& options) {
  begin_call("all_reduce_into");
  for (const Tensor& value : values) leaves_.push_back({.tensor = &value});
  all_reduce_leaves_into(op.op(), options);
}

void ReplicaContext::all_reduce_leaves(ReduceOp op, const CommunicationOptions& options) {
  require_tensors("all_reduce");
  const CommunicationOptions merged = merged_options(options);
  CollectiveCall call(
      runner_, {.kind = CallKind::ALL_REDUCE, .op = op, .leaves = leaves_, .options = &merged});
  meet(call);
}

void ReplicaContext::all_reduce_leaves_into(ReduceOp op, const CommunicationOptions& options) {
  require_tensors("all_reduce_into");
  for (const detail::ReplicaLeaf& leaf : leaves_) {
    if (leaf.slices != nullptr) {
      throw ValueError(
          "all_reduce_into writes dense tensors in place; IndexedSlices change their "
          "number of rows: use all_reduce");
    }
  }
  const CommunicationOptions merged = merged_options(options);
  CollectiveCall call(
      runner_,
      {.kind = CallKind::ALL_REDUCE_INTO, .op = op, .leaves = leaves_, .options = &merged});
  meet(call);
}

void ReplicaContext::all_gather_leaves(int axis, const CommunicationOptions& options) {
  require_tensors("all_gather");
  for (const detail::ReplicaLeaf& leaf : leaves_) {
    if (leaf.slices != nullptr)
      throw UnimplementedError("all_gather takes dense tensors, not IndexedSlices");
  }
  const CommunicationOptions merged = merged_options(options);
  CollectiveCall call(
      runner_, {.kind = CallKind::ALL_GATHER, .axis = axis, .leaves = leaves_, .options = &merged});
  meet(call);
}

void ReplicaContext::run_merge_call(detail::MergeCallBase& call) {
  MergeRound round(runner_, call, {.kind = CallKind::MERGE_CALL});
  meet(round);
}

void ReplicaContext::run_update(const DistributedVariable& variable, detail::MergeCallBase& call) {
  if (&variable.extended() != &runner_.extended()) {
    throw ValueError("update: variable '" + variable.name() + "' on " +
                     variable.devices().to_string() + " belongs to another strategy");
  }
  MergeRound round(runner_, call,
                   {.kind = CallKind::UPDATE,
                    .variable = variable.components().values()[0].data(),
                    .variable_name = variable.name()});
  meet(round);
}

CommunicationOptions ReplicaContext::merged_options(const CommunicationOptions& options) const {
  CommunicationOptions merged = runner_.extended().communication_options().merge(options);
  merged.validate();
  return merged;
}

void ReplicaContext::require_tensors(const char* method) const {
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    const detail::ReplicaLeaf& leaf = leaves_[i];
    const Tensor& tensor = leaf.slices != nullptr ? leaf.slices->values : *leaf.tensor;
    if (!tensor) {
      throw ValueError(std::string(method) + ": value " + std::to_string(i) + " of replica " +
                       std::to_string(id_) + " is no tensor, only an empty handle");
    }
  }
}

void ReplicaContext::begin_call(const char* method) {
  require_here(method);
  leaves_.clear();
}

void ReplicaContext::require_here(const char* method) const {
  detail::require_not_forked();
  if (get_replica_context() == this) return;
  throw FailedPreconditionError(
      std::string(method) + " of replica " + std::to_string(id_) +
      (in_cross_replica_context()
           ? ": this thread is in cross-replica context (inside merge_call, update or a scope)"
           : ": this thread does not run that replica"));
}

void ReplicaContext::meet(ReplicaCall& call) {
  require_here(to_string(call.description().kind));
  runner_.call(local_id_, call);
}

}  // namespace crossdevice
