// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/host_reduce.h"

#include <array>
#include <vector>

#include "crossdevice/collective/direct_reduce.h"
#include "crossdevice/collective/reduction_span.h"
#include "crossdevice/device/reduce_kernel.h"
#include "crossdevice/device/scratch_lease.h"

namespace crossdevice::detail {
namespace {

constexpr std::size_t kFew = 64;

/// Forwards what the engine says about its tensors to the operation's items.
class ProgressReporter final : public OperationObserver {
 public:
  ProgressReporter(ActiveOperation& active, std::span<const ReduceItem> items)
      : active_(active), items_(items) {}
  [[nodiscard]] bool stop_requested() const override { return active_.stop_requested(); }
  void tensor_completed(std::size_t tensor) override {
    if (!items_.empty()) active_.complete_item(items_[tensor].item);
  }

 private:
  ActiveOperation& active_;
  std::span<const ReduceItem> items_;
};

/// Of one replica.
std::size_t size_of(std::span<const DirectReduceTensor> tensors) {
  std::size_t size = 0;
  for (const DirectReduceTensor& tensor : tensors) {
    size += tensor.num_elements * size_in_bytes(tensor.dtype);
  }
  return size;
}

const ReductionAlgorithm& direct_or_hierarchical(std::size_t first_group) {
  return first_group == 0 ? kDirectReduction : kHierarchicalReduction;
}

/// Runs a request on its engine, and turns the outcome into what hooks throw.
template <class Request>
void run(const ReductionAlgorithm& algorithm, DirectReduceOutcome (*engine)(const Request&),
         Request& request, std::span<const ReduceItem> items, ActiveOperation& active) {
  const ReductionSpan span(algorithm, size_of(request.tensors), request.tensors[0].dtype);
  active.require_time_left();
  active.set_written();
  ProgressReporter reporter(active, items);
  request.deadline = active.deadline();
  if (active.reports_progress()) request.observer = &reporter;
  const DirectReduceOutcome outcome = engine(request);
  request.observer = nullptr;  // the reporter ends with this function
  switch (outcome) {
    case DirectReduceOutcome::COMPLETED:
      return;
    case DirectReduceOutcome::DEADLINE_PASSED:
      active.throw_deadline_exceeded();
    case DirectReduceOutcome::STOPPED:
      active.throw_stopped();
  }
}

/// Addresses of a value's components: in the given array when they fit.
template <class Pointer>
std::span<const Pointer> addresses(std::span<const Tensor> tensors, std::array<Pointer, kFew>& few,
                                   std::vector<Pointer>& many) {
  if (tensors.size() > kFew) {
    for (const Tensor& tensor : tensors) many.push_back(tensor.data());
    return many;
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) few[i] = tensors[i].data();
  return {few.data(), tensors.size()};
}

/// A batch as the engine takes it.
struct BatchAddresses {
  std::vector<const void*> inputs;  // of all tensors, one after the other
  std::vector<void*> outputs;
  std::vector<DirectReduceTensor> tensors;  // spans of the two above, which therefore must not move

  void reserve(std::span<const ReduceItem> items) {
    std::size_t num_inputs = 0;
    std::size_t num_outputs = 0;
    for (const ReduceItem& item : items) {
      num_inputs += item.value->size();
      num_outputs += item.result->size();
    }
    inputs.reserve(num_inputs);
    outputs.reserve(num_outputs);
    tensors.reserve(items.size());
  }
  void add(const ReduceItem& item) {
    const std::size_t first_input = inputs.size();
    const std::size_t first_output = outputs.size();
    for (const Tensor& tensor : item.value->values()) inputs.push_back(tensor.data());
    for (const Tensor& tensor : item.result->values()) outputs.push_back(tensor.data());
    const Tensor& first = item.value->values()[0];
    tensors.push_back({first.dtype(), first.num_elements(),
                       std::span<const void* const>(inputs).subspan(first_input),
                       std::span<void* const>(outputs).subspan(first_output)});
  }
  void clear() {
    tensors.clear();
    inputs.clear();
    outputs.clear();
  }
};

void run_one(ReduceOp op, DType dtype, std::size_t num_elements, std::size_t first_group,
             std::span<const Tensor> from, std::span<const Tensor> to, ActiveOperation& active) {
  // Uninitialised on purpose: clearing 1 KiB would cost more than a small reduction.
  std::array<const void*, kFew> few_inputs;
  std::array<void*, kFew> few_outputs;
  std::vector<const void*> many_inputs;
  std::vector<void*> many_outputs;
  const DirectReduceTensor tensor{dtype, num_elements, addresses(from, few_inputs, many_inputs),
                                  addresses(to, few_outputs, many_outputs)};
  DirectReduceRequest request{.op = op,
                              .first_group = first_group,
                              .tensors = std::span<const DirectReduceTensor>(&tensor, 1),
                              .packs = {}};
  run(direct_or_hierarchical(first_group), direct_reduce, request, {}, active);
}

}  // namespace

void host_reduce(ReduceOp op, std::size_t first_group, const PerReplica& value,
                 const Mirrored& result, ActiveOperation& active) {
  const Tensor& first = value.values()[0];
  run_one(op, first.dtype(), first.num_elements(), first_group, value.values(), result.values(),
          active);
}

void host_batch_reduce(ReduceOp op, std::size_t first_group, std::span<const ReduceItem> items,
                       std::span<const Pack> packs, ActiveOperation& active) {
  if (items.empty()) return;
  const ScratchLease<BatchAddresses> scratch;
  scratch->reserve(items);
  for (const ReduceItem& item : items) scratch->add(item);
  const std::span<const DirectReduceTensor> tensors = scratch->tensors;
  DirectReduceRequest request{
      .op = op, .first_group = first_group, .tensors = tensors, .packs = packs};
  run(direct_or_hierarchical(first_group), direct_reduce, request, items, active);
}

void host_scheduled_reduce(ReduceOp op, std::span<const ReduceItem> items,
                           std::span<const ScheduledPack> packs, ActiveOperation& active) {
  if (items.empty()) return;
  const ScratchLease<BatchAddresses> scratch;
  scratch->reserve(items);
  for (const ReduceItem& item : items) scratch->add(item);
  const std::span<const DirectReduceTensor> tensors = scratch->tensors;
  ScheduledReduceRequest request{.op = op, .tensors = tensors, .packs = packs};
  run(kScheduledReduction, scheduled_reduce, request, items, active);
}

void host_broadcast(const Tensor& source, const Mirrored& result, ActiveOperation& active) {
  // The sum of one input is a copy: as bytes, so that it is one for every dtype.
  run_one(ReduceOp::SUM, DType::UINT8, source.size_bytes(), 0, std::span<const Tensor>(&source, 1),
          result.values(), active);
}

void host_divide(const Tensor& sum, std::size_t count, const Mirrored& result,
                 ActiveOperation& active) {
  // The mean of one input is that input in the result's dtype; what is left is the division.
  run_one(ReduceOp::MEAN, sum.dtype(), sum.num_elements(), 0, std::span<const Tensor>(&sum, 1),
          result.values(), active);
  for (const Tensor& tensor : result.values()) {
    divide_elements(tensor.dtype(), tensor.data(), tensor.num_elements(),
                    static_cast<double>(count));
  }
}

}  // namespace crossdevice::detail
