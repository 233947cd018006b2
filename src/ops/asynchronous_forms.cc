// SPDX-License-Identifier: Apache-2.0
// The *_async forms of CrossDeviceOps: check at once, prepare buffers, enqueue on the progress stream.
#include <functional>
#include <mutex>
#include <utility>

#include "crossdevice/core/error.h"
#include "crossdevice/device/shutdown.h"
#include "crossdevice/ops/cross_device_ops.h"

#include "ops/detail/active_operation.h"
#include "ops/detail/pending_batch_state.h"
#include "ops/detail/settle.h"
#include "ops/detail/validation.h"

namespace crossdevice {

using detail::ActiveOperation;
using detail::OperationName;
using detail::OperationQueue;
using detail::PendingBatchState;

namespace {

/// The same components without the mark that an operation is in flight on them: for that very operation, and because one that stands behind it
/// may write what it reads. Those that write them already come first.
template <class Values>
Values unmarked(PendingBatchState& state, const Values& values) {
  for (const Tensor& tensor : values.values()) state.come_behind(tensor);
  detail::InlineVector<Tensor, 8> tensors;
  for (const Tensor& tensor : values.values())
    tensors.push_back(detail::with_own_readiness(tensor));
  return Values(tensors.view());
}

PerReplica unmarked_slices(PendingBatchState& state, const PerReplica& value) {
  std::vector<IndexedSlices> slices;
  for (const IndexedSlices& part : value.slices()) {
    state.come_behind(part.values);
    state.come_behind(part.indices);
    slices.push_back({detail::with_own_readiness(part.values),
                      detail::with_own_readiness(part.indices), part.dense_shape});
  }
  return PerReplica(std::move(slices));
}

std::vector<ValueDestinationPair> in_place(std::span<const PerReplica> values) {
  std::vector<ValueDestinationPair> pairs;
  pairs.reserve(values.size());
  for (const PerReplica& value : values) pairs.push_back({value, Destinations::into(value)});
  return pairs;
}

/// Adds one dense value: its result exists from now on. `result` has the right dtype and shape.
void add_dense(PendingBatchState& state, const PerReplica& value, Mirrored result) {
  const std::size_t item = state.pairs.size();
  state.outputs.push_back(unmarked(state, result));
  state.pairs.push_back({unmarked(state, value), Destinations::into(state.outputs.back())});
  state.results[item] = std::move(result);
}

void add_reduction(PendingBatchState& state, ReduceOp op, const PerReplica& value,
                   const Destinations& destinations) {
  if (value.is_sparse()) {
    state.pairs.push_back({unmarked_slices(state, value), destinations.devices()});
    return;
  }
  add_dense(state, value,
            destinations.make_result(result_dtype(op, value.dtype()), value.shape(), value));
}

}  // namespace

/// How every asynchronous form ends: enqueue `body`, which runs the hooks when the operation's turn has come.
struct CrossDeviceOps::Async {
  using Body = std::function<void(PendingBatchState&, ActiveOperation&)>;

  CrossDeviceOps& ops;

  [[nodiscard]] std::shared_ptr<PendingBatchState> make_state(std::size_t num_items) const {
    // Before a ticket is drawn: in a child nobody serves those before it.
    detail::require_not_forked();
    // Nor could it end the turn of an operation with a timeout that is none.
    (void)Deadline::after_timeout_seconds(ops.queue_->timeout_seconds());
    if (ops.queue_->is_held_by_this_thread()) {
      throw FailedPreconditionError(
          "an asynchronous form was called from a hook of the same object: waiting for it there "
          "would never end");
    }
    return std::make_shared<PendingBatchState>(ops.queue_, num_items);
  }

  [[nodiscard]] PendingBatch launch(std::shared_ptr<PendingBatchState> state,
                                    const OperationName& name, const CommunicationOptions& options,
                                    Body body) const {
    // In one step: were two threads to draw in one order and enqueue in the other, the progress thread would wait for a ticket whose
    // task stands behind the one it runs.
    std::unique_lock lock(ops.queue_->enqueue_mutex());
    const OperationQueue::Ticket ticket = ops.queue_->draw_enqueued_ticket();
    Stream& stream = ops.queue_->progress();
    state->hold_results(stream);
    // Of a call that is cancelled before it begins nothing is left that others would wait for: not its turn, and no tensor that is marked as in flight. It
    // counts: among workers it is the others' call still, and the next one here must not be taken for it.
    try {
      state->work->on_cancel([weak = std::weak_ptr(state), queue = state->queue, ticket] {
        if (const std::shared_ptr<PendingBatchState> alive = weak.lock()) alive->release_all();
        queue->abandon(ticket);
      });
      for (Stream* const other : state->behind) {
        if (other != &stream) stream.wait(other->record());
      }
      stream.launch([state, name, options, ticket, body = std::move(body)] {
        run(*state, name, options, ticket, body);
      });
    } catch (...) {
      lock.unlock();
      state->queue->begin_enqueued_turn(ticket);  // a ticket that was drawn must be served
      state->queue->end_turn();
      state->release_all();
      throw;
    }
    lock.unlock();
    return PendingBatch(std::move(state));
  }

  static void run(PendingBatchState& state, const OperationName& name,
                  const CommunicationOptions& options, OperationQueue::Ticket ticket,
                  const Body& body) {
    detail::carries_out_operations() = true;
    // First the turn: what only waits for it can be cancelled.
    if (!state.queue->await_enqueued_turn(ticket) || !state.work->start()) {
      state.release_all();  // cancelled; who did so may come too late to do this
      return;
    }
    state.queue->take_turn();
    ActiveOperation active(*state.queue, name, options, &state);
    std::exception_ptr error;
    try {
      body(state, active);
      state.add_gpu_ends();
    } catch (...) {
      error = std::current_exception();
      active.set_failed(error);
      error = active.named(error);
    }
    active.count();
    state.finish(std::move(error));
  }

  [[nodiscard]] PendingBatch reduce_pairs(ReduceOp op, std::span<const ValueDestinationPair> pairs,
                                          const CommunicationOptions& options,
                                          const detail::StreamedPack* pack = nullptr) const {
    const detail::ReducibleBatch size = detail::require_batch_reducible(op, pairs);
    detail::require_implementation(pairs, options);
    std::shared_ptr<PendingBatchState> state = make_state(pairs.size());
    if (pack != nullptr) state->streamed_pack = *pack;
    for (const ValueDestinationPair& pair : pairs) {
      add_reduction(*state, op, pair.value, pair.destinations);
    }
    CrossDeviceOps* target = &ops;
    const Devices devices = pairs.empty() ? Devices() : pairs[0].value.devices();
    return launch(std::move(state),
                  {detail::kBatchReduce, pairs.size(), size.size_bytes, size.in_place, devices},
                  options,
                  [target, op, options](PendingBatchState& batch, ActiveOperation& active) {
                    if (batch.pairs.empty()) return;
                    std::vector<Mirrored> results =
                        target->batch_reduce_implementation(op, batch.pairs, options);
                    detail::settle_batch(results, batch.pairs);
                    for (std::size_t i = 0; i < results.size(); ++i) {
                      active.complete_item(i, results[i]);
                    }
                  });
  }

  /// reduce() calls its own hook, not the batch's: an override of one must see exactly what the blocking form shows it.
  [[nodiscard]] PendingBatch reduce_one(ReduceOp op, const PerReplica& value,
                                        const Destinations& destinations,
                                        const CommunicationOptions& options) const {
    detail::require_reducible(op, value, destinations);
    detail::require_implementation(value, options);
    const bool in_place = detail::require_no_overlaps(value, destinations);
    std::shared_ptr<PendingBatchState> state = make_state(1);
    add_reduction(*state, op, value, destinations);
    CrossDeviceOps* target = &ops;
    const OperationName name{detail::kReduce, 1, detail::component_size_bytes(value), in_place,
                             value.devices()};
    return launch(std::move(state), name, options,
                  [target, op, options](PendingBatchState& batch, ActiveOperation& active) {
                    const ValueDestinationPair& pair = batch.pairs[0];
                    Mirrored result =
                        target->reduce_implementation(op, pair.value, pair.destinations, options);
                    detail::settle(result, pair.destinations);
                    active.complete_item(0, result);
                  });
  }
};

PendingBatch CrossDeviceOps::reduce_async(ReduceOp op, const PerReplica& value,
                                          const Destinations& destinations,
                                          const CommunicationOptions& options) {
  queue_->rethrow_kept_error();
  options.validate();
  return Async{*this}.reduce_one(op, value, destinations, options);
}

PendingBatch CrossDeviceOps::reduce_into_async(ReduceOp op, const PerReplica& value,
                                               const DistributedValues& outputs,
                                               const CommunicationOptions& options) {
  return reduce_async(op, value, Destinations::into(outputs), options);
}

PendingBatch CrossDeviceOps::batch_reduce_async(ReduceOp op,
                                                std::span<const ValueDestinationPair> pairs,
                                                const CommunicationOptions& options) {
  queue_->rethrow_kept_error();
  options.validate();
  return Async{*this}.reduce_pairs(op, pairs, options);
}

PendingBatch CrossDeviceOps::batch_reduce_into_async(ReduceOp op,
                                                     std::span<const PerReplica> values,
                                                     const CommunicationOptions& options) {
  return batch_reduce_async(op, in_place(values), options);
}

PendingBatch CrossDeviceOps::reduce_pack_async(ReduceOp op, std::span<const PerReplica> values,
                                               const CommunicationOptions& options,
                                               const detail::StreamedPack& pack) {
  queue_->rethrow_kept_error();
  options.validate();
  return Async{*this}.reduce_pairs(op, in_place(values), options, &pack);
}

PendingBatch CrossDeviceOps::broadcast_async(const Tensor& tensor,
                                             const Destinations& destinations) {
  queue_->rethrow_kept_error();
  detail::require_broadcastable(tensor, destinations);
  const bool in_place = detail::require_no_overlaps(PerReplica(tensor), destinations);
  const Async async{*this};
  std::shared_ptr<PendingBatchState> state = async.make_state(1);
  add_dense(*state, tensor,
            destinations.make_result(tensor.dtype(), tensor.shape(), PerReplica(tensor)));
  return async.launch(
      std::move(state), {detail::kBroadcast, 1, tensor.size_bytes(), in_place, tensor.device()}, {},
      [this](PendingBatchState& batch, ActiveOperation& active) {
        const ValueDestinationPair& pair = batch.pairs[0];
        Mirrored result = broadcast_implementation(pair.value.values()[0], pair.destinations);
        detail::settle(result, pair.destinations);
        active.complete_item(0, result);
      });
}

PendingBatch CrossDeviceOps::gather_async(const PerReplica& value, const Destinations& destinations,
                                          int axis, const CommunicationOptions& options) {
  queue_->rethrow_kept_error();
  options.validate();
  const bool is_part = gathers_from_other_workers();
  const Shape shape = detail::require_gatherable(
      value, destinations, axis,
      is_part ? detail::GatherScope::ALL_WORKERS : detail::GatherScope::VALUE);
  detail::require_implementation(value, options);
  detail::require_apart(value, destinations);
  const Async async{*this};
  std::shared_ptr<PendingBatchState> state = async.make_state(1);
  if (is_part && destinations.outputs() == nullptr) {
    state->pairs.push_back(
        {unmarked(*state, value), destinations.devices()});  // the hook makes the result
  } else {
    add_dense(*state, value, destinations.make_result(value.dtype(), shape, value));
  }
  return async.launch(
      std::move(state),
      {detail::kGather, 1, detail::component_size_bytes(value), false, value.devices()}, options,
      [this, axis, options](PendingBatchState& batch, ActiveOperation& active) {
        const ValueDestinationPair& pair = batch.pairs[0];
        Mirrored result = gather_implementation(pair.value, pair.destinations, axis, options);
        detail::settle(result, pair.destinations);
        active.complete_item(0, result);
      });
}

}  // namespace crossdevice
