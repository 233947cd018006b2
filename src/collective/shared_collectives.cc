// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/shared_collectives.h"

#include <cstddef>
#include <utility>

#include "crossdevice/collective/direct_reduce.h"
#include "crossdevice/collective/shared_direct_reduce.h"
#include "crossdevice/core/error.h"

#include "collective/detail/call_details.h"
#include "collective/detail/collective_checks.h"
#include "collective/detail/timed_copy.h"

namespace crossdevice {

struct SharedCollectives::State {
  SharedDirectReduce engine;
  std::size_t num_ranks;
  std::size_t rank;

  State(const std::shared_ptr<Cluster>& cluster, const Deadline& deadline)
      : engine(cluster, {}, deadline),
        num_ranks(static_cast<std::size_t>(cluster->num_workers())),
        rank(static_cast<std::size_t>(cluster->rank())) {}

  /// Everybody shows `tensor`, after which all know that all mean the same. `use` writes `output`; null: nothing.
  template <class Use>
  void show(const CollectiveRequest& request, const Tensor& tensor, int root, const Tensor* output,
            Use use) {
    const GroupOperationInfo info = detail::operation_of(request, tensor, root);
    const detail::TellingRoot telling(request, tensor, root);
    bool inputs_are_written = false;
    try {
      engine.share(telling.request(), info, std::span<const Tensor>(&tensor, 1),
                   [&](const RemoteTensors& all) {
                     inputs_are_written = output != nullptr && overlaps(tensor, *output);
                     use(all);
                   });
    } catch (const OpError& error) {
      if (inputs_are_written) throw_with_inputs_changed(error);
      throw;
    }
  }
  void copy_part(const CollectiveRequest& request, std::byte* to, const RemoteTensor& from,
                 std::size_t size_bytes) const {
    detail::copy_in_time(to, from.data, size_bytes, [&] {
      if (request.deadline.has_passed()) engine.throw_late(request, "copied what others have");
    });
  }
  /// Elements [begin, begin + output's) of everybody's, combined into `output`.
  ///
  /// Errors   DeadlineExceededError: some of them are not.
  void combine(const CollectiveRequest& request, const RemoteTensors& all, std::size_t begin,
               const Tensor& output) {
    std::vector<const void*> inputs;
    inputs.reserve(num_ranks);
    for (const std::vector<RemoteTensor>& theirs : all) {
      inputs.push_back(theirs[0].data + begin * size_in_bytes(theirs[0].dtype));
    }
    void* const outputs[] = {output.data()};
    const DirectReduceTensor tensor{all[0][0].dtype, output.num_elements(), inputs, outputs};
    if (direct_reduce({.op = request.op,
                       .tensors = std::span<const DirectReduceTensor>(&tensor, 1),
                       .deadline = request.deadline}) != DirectReduceOutcome::COMPLETED) {
      engine.throw_late(request, "reduced its part");
    }
  }
};

SharedCollectives::SharedCollectives(const std::shared_ptr<Cluster>& cluster,
                                     const Deadline& deadline)
    : state_(std::make_unique<State>(cluster, deadline)) {}
SharedCollectives::~SharedCollectives() = default;

void SharedCollectives::all_reduce(const CollectiveRequest& request,
                                   std::span<const CollectiveValue> values) {
  state_->engine.all_reduce(request, values);
}

void SharedCollectives::reduce_scatter(const CollectiveRequest& request, const Tensor& input,
                                       const Tensor& output) {
  State& state = *state_;
  const std::size_t part = input.num_elements() / state.num_ranks;
  detail::require_reducible(request.op, input.dtype());
  detail::require_divisible(input, state.num_ranks);
  detail::require_output("reduce_scatter", output, result_dtype(request.op, input.dtype()), part);
  state.show(request, input, 0, &output, [&](const RemoteTensors& all) {
    if (part > 0) state.combine(request, all, state.rank * part, output);
  });
}

void SharedCollectives::all_gather(const CollectiveRequest& request, const Tensor& input,
                                   const Tensor& output) {
  State& state = *state_;
  detail::require_output("all_gather", output, input.dtype(),
                         input.num_elements() * state.num_ranks);
  state.show(request, input, 0, nullptr, [&](const RemoteTensors& all) {
    auto* at = static_cast<std::byte*>(output.data());
    for (const std::vector<RemoteTensor>& theirs : all) {
      state.copy_part(request, at, theirs[0], input.size_bytes());
      at += input.size_bytes();
    }
  });
}

void SharedCollectives::broadcast(const CollectiveRequest& request, const Tensor& tensor,
                                  int root) {
  State& state = *state_;
  detail::require_root(root, state.num_ranks);
  detail::require_output("broadcast", tensor, tensor.dtype(), tensor.num_elements());
  state.show(request, tensor, root,
             static_cast<std::size_t>(root) == state.rank ? nullptr : &tensor,
             [&](const RemoteTensors& all) {
               if (static_cast<std::size_t>(root) == state.rank) return;
               state.copy_part(request, static_cast<std::byte*>(tensor.data()),
                               all[static_cast<std::size_t>(root)][0], tensor.size_bytes());
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
  state.show(request, input, root, is_root ? &output : nullptr, [&](const RemoteTensors& all) {
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
  state.show(request, input, root, nullptr, [&](const RemoteTensors& all) {
    if (!is_root) return;
    auto* at = static_cast<std::byte*>(output.data());
    for (const std::vector<RemoteTensor>& theirs : all) {
      state.copy_part(request, at, theirs[0], input.size_bytes());
      at += input.size_bytes();
    }
  });
}

void SharedCollectives::barrier(const CollectiveRequest& request) {
  state_->engine.share(request, {.kind = request.kind, .fingerprint = request.fingerprint}, {},
                       [](const RemoteTensors&) {});
}

void SharedCollectives::share(const CollectiveRequest& request, std::span<const Tensor> tensors,
                              const std::function<void(const RemoteTensors& all)>& use) {
  state_->engine.share(
      request, {.kind = request.kind, .reduce_op = request.op, .fingerprint = request.fingerprint},
      tensors, use);
}

std::vector<PackCandidate> SharedCollectives::rank_pack_sizes() const { return {}; }

std::string SharedCollectives::explain_all_reduce(std::size_t size_bytes) const {
  return size_bytes <= SharedDirectReduce::kInlineBytes
             ? "slots of shared memory, everybody reduces all; the only way for so few bytes on "
               "one machine"
             : "direct reduction in shared memory, everybody a part; the only way on one machine";
}

}  // namespace crossdevice
