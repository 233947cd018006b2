// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/nccl_then_hosts.h"

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "crossdevice/collective/gpu_reduce.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/tensor.h"
#include "crossdevice/ops/values.h"

#include "ops/detail/component_reduce.h"
#include "ops/detail/staged_reduce.h"

namespace crossdevice::detail {
namespace {

/// In the order of the stream that `tensor` has.
Tensor make_beside(const Tensor& tensor) {
  if (tensor.stream().has_value()) {
    return Tensor::empty(tensor.dtype(), tensor.shape(), tensor.device(), *tensor.stream());
  }
  return Tensor::empty(tensor.dtype(), tensor.shape(), tensor.device());
}

/// What one worker has of the items.
class WorkerLevel {
 public:
  WorkerLevel(const NcclThenHostsRequest& request, std::size_t worker)
      : request_(request),
        components_(request.part.workers[worker].components),
        reducer_(request.reducers[worker]) {
    const std::size_t num_tensors = request.items.size() * components_.size();
    inputs_.reserve(num_tensors);
    outputs_.reserve(num_tensors);
    sums_.reserve(request.items.size());
    for (const ReduceItem& item : request.items) {
      const Tensor& first = item.value->values()[components_[0]];
      for (const std::size_t i : components_) {
        inputs_.push_back(item.value->values()[i]);
        outputs_.push_back(item.result->on(item.value->devices()[i]));
      }
      sums_.push_back(reducer_ == nullptr ? first : make_beside(first));
    }
  }

  [[nodiscard]] const Tensor& sum(std::size_t item) const { return sums_[item]; }
  /// On the first GPU.
  [[nodiscard]] const Tensor& output(std::size_t item) const {
    return outputs_[item * components_.size()];
  }

  /// Enqueues it. Nobody is told of its later failures but await_sums().
  void reduce(ReduceOp op, ActiveOperation& active) const {
    if (reducer_ == nullptr) return;
    std::vector<GpuReduceTensor> tensors;
    tensors.reserve(sums_.size());
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      tensors.push_back({of_item(inputs_, i), std::span<const Tensor>(&sums_[i], 1)});
    }
    GpuOperation operation = gpu_operation(active);
    operation.listener = nullptr;
    operation.is_in_place = false;
    reducer_->reduce(request_of(op, NcclPattern::REDUCE, tensors, std::move(operation)));
  }

  void await_sums(const ActiveOperation& active) const {
    if (reducer_ == nullptr) return;
    await_streams(sums_, active);
    reducer_->require_usable();
  }

  /// From the first GPU, divided by `divisor` before.
  void share(double divisor, ActiveOperation& active) const {
    std::vector<GpuReduceTensor> tensors;
    tensors.reserve(sums_.size());
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      if (divisor != 1 && output(i).num_elements() != 0) {
        gpu_divide(output(i), divisor, gpu_operation(active));
      }
      tensors.push_back({std::span<const Tensor>(&output(i), 1), of_item(outputs_, i)});
    }
    if (reducer_ == nullptr) return;
    reducer_->reduce(
        request_of(ReduceOp::SUM, NcclPattern::BROADCAST, tensors, gpu_operation(active)));
  }

 private:
  [[nodiscard]] std::span<const Tensor> of_item(std::span<const Tensor> tensors,
                                                std::size_t item) const {
    return tensors.subspan(item * components_.size(), components_.size());
  }
  [[nodiscard]] NcclReduceRequest request_of(ReduceOp op, NcclPattern pattern,
                                             std::span<const GpuReduceTensor> tensors,
                                             GpuOperation operation) const {
    return {.op = op,
            .pattern = pattern,
            .tensors = tensors,
            .packs = request_.part.packs,
            .bytes_per_pack = request_.bytes_per_pack,
            .operation = std::move(operation)};
  }

  const NcclThenHostsRequest& request_;
  const std::vector<std::size_t>& components_;
  NcclReducer* reducer_;
  // Item by item, of each the worker's components in order.
  std::vector<Tensor> inputs_;
  std::vector<Tensor> outputs_;
  std::vector<Tensor> sums_;  // one of each item, on the first GPU
};

/// By the host, on copies, from each worker's sum to its first output.
void reduce_among(ReduceOp op, const NcclThenHostsRequest& request,
                  std::span<const WorkerLevel> workers, ActiveOperation& active) {
  std::vector<PerReplica> sums;
  std::vector<Mirrored> outputs;
  sums.reserve(request.items.size());
  outputs.reserve(request.items.size());
  std::vector<ReduceItem> items;
  items.reserve(request.items.size());
  for (std::size_t i = 0; i < request.items.size(); ++i) {
    std::vector<Tensor> from;
    std::vector<Tensor> to;
    for (const WorkerLevel& worker : workers) {
      from.push_back(worker.sum(i));
      to.push_back(worker.output(i));
    }
    items.push_back(
        {&sums.emplace_back(from), &outputs.emplace_back(to), PendingBatchState::kNoItem});
  }
  staged_scheduled_reduce(op, items, request.part.upper, active);
}

}  // namespace

void nccl_then_hosts_reduce(const NcclThenHostsRequest& request, ActiveOperation& active) {
  active.require_time_left();
  for (const ReduceItem& item : request.items) {
    await_streams(item.value->values(), active);
    await_streams(item.result->values(), active);
  }
  std::vector<WorkerLevel> workers;
  workers.reserve(request.part.workers.size());
  for (std::size_t w = 0; w < request.part.workers.size(); ++w) workers.emplace_back(request, w);
  // The division is the last step, of all components' sum.
  const bool is_mean = request.op == ReduceOp::MEAN;
  const ReduceOp op = is_mean ? ReduceOp::SUM : request.op;
  const double divisor = is_mean ? static_cast<double>(request.items[0].value->size()) : 1;
  for (const WorkerLevel& worker : workers) worker.reduce(op, active);
  for (const WorkerLevel& worker : workers) worker.await_sums(active);
  reduce_among(op, request, workers, active);
  try {
    for (const WorkerLevel& worker : workers) worker.share(divisor, active);
  } catch (const OpError& error) {
    if (active.is_in_place()) throw_with_inputs_changed(error);
    throw;
  }
  for (const ReduceItem& item : request.items) active.complete_item(item.item);
}

}  // namespace crossdevice::detail
