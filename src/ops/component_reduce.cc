// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/component_reduce.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "crossdevice/collective/reduction_span.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/copy.h"
#include "crossdevice/device/reduce_kernel.h"
#include "crossdevice/device/scratch_lease.h"

#include "ops/detail/host_gather.h"
#include "ops/detail/staged_value.h"
#include "ops/detail/stream_wait.h"

namespace crossdevice::detail {
namespace {

bool is_host(const Device& device) { return device.is_host(); }

const Device& first_gpu(const Devices& devices) {
  return *std::find_if_not(devices.begin(), devices.end(), is_host);
}

bool has_gpu(const Devices& devices) { return !devices.all_host(); }

void reduce_mixed(ReduceOp op, const ReduceRoute& route, const PerReplica& value,
                  const Mirrored& result, ActiveOperation& active) {
  const Devices& destinations = result.devices();
  const Device target = route.reducer.has_value() ? *route.reducer
                        : has_gpu(destinations)   ? first_gpu(destinations)
                                                  : first_gpu(value.devices());
  active.require_time_left();
  const StagedValue staged(value, result, target, active);
  ReduceRoute inner = route;
  inner.reducer = target;
  inner.is_waited_for = staged.puts_back();
  reduce_components(op, inner, staged.inputs(), staged.outputs(), active);
  staged.put_back(result, active);
}

/// One after the other: what has been put back stays, whatever befalls the next.
void reduce_mixed_batch(ReduceOp op, const ReduceRoute& route, const ReduceBatch& batch,
                        ActiveOperation& active) {
  bool has_written = false;
  try {
    for (const ReduceItem& item : batch.items) {
      reduce_mixed(op, route, *item.value, *item.result, active);
      has_written = true;
      active.complete_item(item.item);
    }
  } catch (const OpError& error) {
    if (has_written && active.is_in_place()) throw_with_inputs_changed(error);
    throw;
  }
}

struct GpuTensors {
  std::vector<GpuReduceTensor> tensors;
  void clear() { tensors.clear(); }
};

void reduce_on_gpus(ReduceOp op, const ReduceRoute& route, const ReduceBatch& batch,
                    ActiveOperation& active) {
  active.require_time_left();
  active.set_written();
  const ScratchLease<GpuTensors> scratch;
  scratch->tensors.reserve(batch.items.size());
  for (const ReduceItem& item : batch.items) {
    scratch->tensors.push_back({item.value->values(), item.result->values()});
  }
  std::size_t size_bytes = 0;
  for (const ReduceItem& item : batch.items) size_bytes += item.value->values()[0].size_bytes();
  // What is enqueued: the GPUs are not waited for.
  const ReductionSpan span(batch.nccl != nullptr ? kNcclReduction : kGpuKernelReduction, size_bytes,
                           batch.items[0].value->dtype());
  if (batch.nccl != nullptr) {
    batch.nccl->reduce({.op = op,
                        .tensors = scratch->tensors,
                        .packs = batch.packs,
                        .bytes_per_pack = batch.bytes_per_pack,
                        .fingerprint = batch.fingerprint,
                        .kind = batch.kind,
                        .operation = gpu_operation(active)});
  } else {
    gpu_reduce({.op = op,
                .first_group = route.first_group,
                .tensors = scratch->tensors,
                .reducer = route.reducer,
                .operation = gpu_operation(active, route.is_waited_for)});
  }
  for (const ReduceItem& item : batch.items) active.complete_item(item.item);
}

}  // namespace

Placement placement_of(const Devices& inputs, const Devices& outputs) {
  if (inputs.all_host() && outputs.all_host()) return Placement::HOSTS;
  const bool any_host = std::any_of(inputs.begin(), inputs.end(), is_host) ||
                        std::any_of(outputs.begin(), outputs.end(), is_host);
  return any_host ? Placement::MIXED : Placement::GPUS;
}

GpuOperation gpu_operation(ActiveOperation& active, bool is_waited_for) {
  return {.record = active.record(),
          .timeout_seconds = active.timeout_seconds(),
          .deadline = active.deadline(),
          .listener = is_waited_for ? nullptr : active.listener(),
          .is_in_place = active.is_in_place()};
}

void reduce_components(ReduceOp op, const ReduceRoute& route, const PerReplica& value,
                       const Mirrored& result, ActiveOperation& active) {
  switch (placement_of(value.devices(), result.devices())) {
    case Placement::HOSTS:
      host_reduce(op, route.first_group, value, result, active);
      return;
    case Placement::GPUS: {
      const ReduceItem item{&value, &result, PendingBatchState::kNoItem};
      reduce_on_gpus(op, route,
                     {.items = std::span<const ReduceItem>(&item, 1), .placement = Placement::GPUS},
                     active);
      return;
    }
    case Placement::MIXED:
      reduce_mixed(op, route, value, result, active);
      return;
  }
}

void reduce_batch(ReduceOp op, const ReduceRoute& route, const ReduceBatch& batch,
                  ActiveOperation& active) {
  if (batch.items.empty()) return;
  switch (batch.placement) {
    case Placement::HOSTS:
      host_batch_reduce(op, route.first_group, batch.items, batch.packs, active);
      return;
    case Placement::GPUS:
      reduce_on_gpus(op, route, batch, active);
      return;
    case Placement::MIXED:
      reduce_mixed_batch(op, route, batch, active);
      return;
  }
}

void broadcast_component(const Tensor& source, const Mirrored& result, ActiveOperation& active) {
  switch (placement_of(source.device(), result.devices())) {
    case Placement::HOSTS:
      host_broadcast(source, result, active);
      return;
    case Placement::GPUS:
      active.require_time_left();
      active.set_written();
      gpu_broadcast(source, result.values(), gpu_operation(active));
      return;
    case Placement::MIXED:
      // Of this process's alone, also where there are other workers.
      StreamWait(active, StreamWait::When::BEHIND_OTHERS).run([&](const WaitLimit& limit) {
        for (const Tensor& tensor : result.values()) {
          active.require_time_left();
          active.set_written();
          copy(tensor, source, limit);
        }
      });
      return;
  }
}

void divide_component(const Tensor& sum, std::size_t count, const Mirrored& result,
                      ActiveOperation& active) {
  if (placement_of(sum.device(), result.devices()) == Placement::HOSTS) {
    host_divide(sum, count, result, active);
    return;
  }
  // The mean of one input is that input in the result's dtype; what is left is the division, of one copy.
  const Tensor mean = Tensor::empty(result.dtype(), sum.shape(), sum.device());
  reduce_components(ReduceOp::MEAN, {}, sum, Mirrored(std::span<const Tensor>(&mean, 1)), active);
  if (sum.device().is_host()) {
    divide_elements(mean.dtype(), mean.data(), mean.num_elements(), static_cast<double>(count));
  } else {
    gpu_divide(mean, static_cast<double>(count), gpu_operation(active));
  }
  broadcast_component(mean, result, active);
}

void gather_components(const PerReplica& value, std::size_t axis, const Mirrored& result,
                       ActiveOperation& active) {
  switch (placement_of(value.devices(), result.devices())) {
    case Placement::HOSTS:
      host_gather(value, axis, result, active);
      return;
    case Placement::GPUS:
      active.require_time_left();
      active.set_written();
      gpu_gather(value.values(), axis, result.values(), gpu_operation(active));
      return;
    case Placement::MIXED: {
      active.require_time_left();
      const Device target =
          has_gpu(result.devices()) ? first_gpu(result.devices()) : *result.devices().begin();
      const StagedValue staged(value, result, target, active);
      if (target.is_host()) {
        host_gather(staged.inputs(), axis, staged.outputs(), active);
      } else {
        active.set_written();
        gpu_gather(staged.inputs().values(), axis, staged.outputs().values(),
                   gpu_operation(active, staged.puts_back()));
      }
      staged.put_back(result, active);
      return;
    }
  }
}

}  // namespace crossdevice::detail
