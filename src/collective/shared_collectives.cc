// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/shared_collectives.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/collective/direct_reduce.h"
#include "crossdevice/collective/shared_direct_reduce.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/reduce_kernel.h"

#include "collective/detail/collective_checks.h"

namespace crossdevice {

struct SharedCollectives::State {
  SharedDirectReduce engine;
  std::size_t num_ranks;
  std::size_t rank;

  // Scratch of a deterministic reduction; kept.
  std::vector<Tensor> sums;
  std::vector<CollectiveValue> summed;

  explicit State(const std::shared_ptr<Cluster>& cluster)
      : engine(cluster),
        num_ranks(static_cast<std::size_t>(cluster->num_workers())),
        rank(static_cast<std::size_t>(cluster->rank())) {}

  /// Everybody shows `tensor`, after which all know that all mean the same.
  template <class Use>
  void show(const CollectiveRequest& request, const Tensor& tensor, int root, Use use) {
    const GroupOperationInfo info = detail::operation_of(request, tensor, root);
    engine.share(request, info, std::span<const Tensor>(&tensor, 1),
                 [&](const RemoteTensors& all) { use(all); });
  }
  /// Elements [begin, begin + output's) of everybody's, combined into `output`.
  void combine(const CollectiveRequest& request, const RemoteTensors& all, std::size_t begin,
               const Tensor& output) {
    std::vector<const void*> inputs;
    inputs.reserve(num_ranks);
    for (const std::vector<RemoteTensor>& theirs : all) {
      inputs.push_back(theirs[0].data + begin * size_in_bytes(theirs[0].dtype));
    }
    void* const outputs[] = {output.data()};
    const DirectReduceTensor tensor{all[0][0].dtype, output.num_elements(), inputs, outputs};
    (void)direct_reduce(
        {.op = request.op, .tensors = std::span<const DirectReduceTensor>(&tensor, 1)});
  }
  void sum_own(std::span<const CollectiveValue> values);
};

/// Sums each value's inputs in memory of this worker's own.
void SharedCollectives::State::sum_own(std::span<const CollectiveValue> values) {
  sums.clear();
  summed.clear();
  sums.reserve(values.size());  // spans point into it
  for (const CollectiveValue& value : values) {
    const Tensor& first = value.inputs[0];
    sums.push_back(Tensor::empty(first.dtype(), first.shape(), first.device()));
    std::vector<const void*> inputs;
    inputs.reserve(value.inputs.size());
    for (const Tensor& input : value.inputs) inputs.push_back(input.data());
    void* const outputs[] = {sums.back().data()};
    const DirectReduceTensor tensor{first.dtype(), first.num_elements(), inputs, outputs};
    (void)direct_reduce(
        {.op = ReduceOp::SUM, .tensors = std::span<const DirectReduceTensor>(&tensor, 1)});
    summed.push_back({std::span<const Tensor>(&sums.back(), 1), value.outputs});
  }
}

SharedCollectives::SharedCollectives(const std::shared_ptr<Cluster>& cluster)
    : state_(std::make_unique<State>(cluster)) {}
SharedCollectives::~SharedCollectives() = default;

void SharedCollectives::all_reduce(const CollectiveRequest& request,
                                   std::span<const CollectiveValue> values) {
  const bool is_sum = request.op == ReduceOp::SUM || request.op == ReduceOp::MEAN;
  const bool combines_own_first = request.deterministic && is_sum && !values.empty() &&
                                  values[0].inputs.size() > 1 &&
                                  is_floating(values[0].inputs[0].dtype());
  if (!combines_own_first) {
    state_->engine.all_reduce(request, values);
    return;
  }
  // The same arithmetic as over a transport: each worker's sum is stored, then the sum of sums, then the quotient.
  state_->sum_own(values);
  CollectiveRequest sum = request;
  sum.op = ReduceOp::SUM;
  state_->engine.all_reduce(sum, state_->summed);
  state_->sums.clear();
  if (request.op == ReduceOp::SUM) return;
  for (const CollectiveValue& value : values) {
    const auto divisor = static_cast<double>(value.inputs.size() * state_->num_ranks);
    for (const Tensor& output : value.outputs) {
      divide_elements(output.dtype(), output.data(), output.num_elements(), divisor);
    }
  }
}

void SharedCollectives::reduce_scatter(const CollectiveRequest& request, const Tensor& input,
                                       const Tensor& output) {
  State& state = *state_;
  const std::size_t part = input.num_elements() / state.num_ranks;
  detail::require_reducible(request.op, input.dtype());
  detail::require_divisible(input, state.num_ranks);
  detail::require_output("reduce_scatter", output, result_dtype(request.op, input.dtype()), part);
  state.show(request, input, 0, [&](const RemoteTensors& all) {
    if (part > 0) state.combine(request, all, state.rank * part, output);
  });
}

void SharedCollectives::all_gather(const CollectiveRequest& request, const Tensor& input,
                                   const Tensor& output) {
  State& state = *state_;
  detail::require_output("all_gather", output, input.dtype(),
                         input.num_elements() * state.num_ranks);
  state.show(request, input, 0, [&](const RemoteTensors& all) {
    auto* at = static_cast<std::byte*>(output.data());
    for (const std::vector<RemoteTensor>& theirs : all) {
      if (input.size_bytes() > 0) std::memmove(at, theirs[0].data, input.size_bytes());
      at += input.size_bytes();
    }
  });
}

void SharedCollectives::broadcast(const CollectiveRequest& request, const Tensor& tensor,
                                  int root) {
  State& state = *state_;
  detail::require_root(root, state.num_ranks);
  detail::require_output("broadcast", tensor, tensor.dtype(), tensor.num_elements());
  state.show(request, tensor, root, [&](const RemoteTensors& all) {
    if (static_cast<std::size_t>(root) == state.rank || tensor.size_bytes() == 0) return;
    std::memcpy(tensor.data(), all[static_cast<std::size_t>(root)][0].data, tensor.size_bytes());
  });
}

void SharedCollectives::reduce(const CollectiveRequest& request, const Tensor& input,
                               const Tensor& output, int root) {
  State& state = *state_;
  detail::require_root(root, state.num_ranks);
  detail::require_reducible(request.op, input.dtype());
  const bool is_root = static_cast<std::size_t>(root) == state.rank;
  if (is_root) {
    detail::require_output("reduce", output, result_dtype(request.op, input.dtype()),
                           input.num_elements());
  }
  state.show(request, input, root, [&](const RemoteTensors& all) {
    if (is_root && input.num_elements() > 0) state.combine(request, all, 0, output);
  });
}

void SharedCollectives::gather(const CollectiveRequest& request, const Tensor& input,
                               const Tensor& output, int root) {
  State& state = *state_;
  detail::require_root(root, state.num_ranks);
  const bool is_root = static_cast<std::size_t>(root) == state.rank;
  if (is_root) {
    detail::require_output("gather", output, input.dtype(), input.num_elements() * state.num_ranks);
  }
  state.show(request, input, root, [&](const RemoteTensors& all) {
    if (!is_root || input.size_bytes() == 0) return;
    auto* at = static_cast<std::byte*>(output.data());
    for (const std::vector<RemoteTensor>& theirs : all) {
      std::memmove(at, theirs[0].data, input.size_bytes());
      at += input.size_bytes();
    }
  });
}

void SharedCollectives::barrier(const CollectiveRequest& request) {
  state_->engine.share(request, {.kind = request.kind}, {}, [](const RemoteTensors&) {});
}

void SharedCollectives::share(const CollectiveRequest& request, std::span<const Tensor> tensors,
                              const std::function<void(const RemoteTensors& all)>& use) {
  state_->engine.share(request, {.kind = request.kind, .reduce_op = request.op}, tensors, use);
}

std::string SharedCollectives::explain_all_reduce(std::size_t size_bytes) const {
  return size_bytes <= SharedDirectReduce::kInlineBytes
             ? "slots of shared memory, everybody reduces all; the only way for so few bytes on "
               "one machine"
             : "direct reduction in shared memory, everybody a part; the only way on one machine";
}

}  // namespace crossdevice
