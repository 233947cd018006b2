// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/nccl_collectives.h"

#include <algorithm>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/collective/gpu_reduce.h"
#include "crossdevice/comm/argument_agreement.h"
#include "crossdevice/comm/default_devices.h"
#include "crossdevice/comm/gpu_watchdog.h"
#include "crossdevice/comm/nccl_api.h"
#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/operation_kind.h"
#include "crossdevice/core/trace.h"
#include "crossdevice/device/gpu_platform.h"
#include "crossdevice/device/gpu_span.h"

#include "collective/detail/collective_checks.h"
#include "collective/detail/compared_calls.h"
#include "collective/detail/gpu_lanes.h"
#include "collective/detail/gpu_run.h"
#include "collective/detail/launch_order.h"

namespace crossdevice::detail {
namespace {

/// Says, once for each reason, that tensors go through the hosts.
void announce_fallback(const Device& device, const std::string& reason) {
  const std::string message = fmt::format("Communicator on {}: {}", device.short_name(), reason);
  if (environment().strict) throw FailedPreconditionError(message + " (CROSSDEVICE_STRICT=1)");
  log_once("Communicator without NCCL: " + reason, LogSeverity::WARNING,
           message + "; its tensors go through the host instead");
}

/// What is moved and not reduced is bytes to NCCL, which knows fewer dtypes than we.
constexpr NcclDataType kBytes = NcclDataType::UINT8;

/// What a call reads and writes on this worker's GPU.
struct Buffers {
  const Tensor& input;
  int root = 0;
  const Tensor* output = nullptr;   ///< null: this worker has none
  const Tensor* divided = nullptr;  ///< the output, if that is to be divided
  bool is_in_place = false;         ///< the input's elements change
};

/// Of calls that had been counted when they were enqueued.
class LateFailures final : public FailureListener {
 public:
  void operation_failed(std::exception_ptr error) override { count_late_failure(error); }
};

std::byte* at(const Tensor& tensor, std::size_t offset_bytes) {
  return static_cast<std::byte*>(tensor.data()) + offset_bytes;
}

}  // namespace

bool agree_on_gpus(Cluster& cluster, const Device& device, const Deadline& deadline) {
  const std::vector<std::string> all = agree_on_arguments(
      cluster,
      [&] {
        device.require_present();
        return describe_gpus(device);
      },
      deadline);
  require_gpus_apart(cluster, all);
  const auto num_hosts =
      std::count_if(all.begin(), all.end(), [](const std::string& each) { return each.empty(); });
  const bool are_gpus = num_hosts == 0;
  if (cluster.rank() == 0 && !are_gpus && static_cast<std::size_t>(num_hosts) < all.size()) {
    log_once("Communicator of hosts and GPUs", LogSeverity::INFO,
             "Communicator: tensors on GPUs go through the host, since some workers have no GPU");
  }
  return are_gpus;
}

struct NcclCollectives::State {
  State(const std::shared_ptr<Cluster>& workers, const Device& own, OrderedClique made)
      : device(own),
        order(std::move(made.order)),
        clique(std::move(made.clique)),
        calls(workers, order.get(), *clique) {}

  Device device;
  std::unique_ptr<LaunchOrder> order;  // null: this worker is alone
  std::shared_ptr<NcclClique> clique;
  std::shared_ptr<LateFailures> late_failures = std::make_shared<LateFailures>();
  ComparedCalls calls;  // ends first

  [[nodiscard]] std::optional<NcclReduction> reduction(ReduceOp op, DType dtype) const {
    return nccl_reduction(op, dtype, clique->api().version(), clique->compute_capability());
  }
  /// Of a reduction.
  [[nodiscard]] Buffers buffers_of(const NcclCall& call, const Tensor& input, const Tensor* output,
                                   int root = 0) const {
    return {.input = input,
            .root = root,
            .output = output,
            .divided = call.request.op == ReduceOp::MEAN ? output : nullptr,
            .is_in_place = output != nullptr && overlaps(input, *output)};
  }
  [[nodiscard]] NcclReduction require_reduction(ReduceOp op, DType dtype) const {
    if (const std::optional<NcclReduction> how = reduction(op, dtype)) return *how;
    throw InternalError("NCCL was asked for a reduction that it cannot do");
  }
  [[nodiscard]] int rank() const { return clique->rank(0); }
  [[nodiscard]] NcclComm comm() const { return clique->communicator(0); }
  [[nodiscard]] NcclApi& nccl() const { return clique->api(); }

  /// Nobody listens: check() asks the clique.
  void compare(const NcclCall& call, const Tensor& tensor, int root, LaunchOrder::Turn& turn) {
    clique->require_usable();
    calls.compare(pack_operation(operation_of(call.request, tensor, root)), call.request.deadline,
                  /*listener=*/nullptr, turn);
  }
  /// Of a call that launches nothing.
  void compare(const NcclCall& call, const Tensor& tensor, int root) {
    LaunchOrder::Turn turn;
    compare(call, tensor, root, turn);
  }
  /// Enqueues `enqueue(launch, stream)`, one group, and divides what is a mean.
  template <class Calls>
  void run(const NcclCall& call, const Buffers& buffers, Calls enqueue);
  void divide(const Tensor& tensor, CudaStream stream) const;
};

void NcclCollectives::State::divide(const Tensor& tensor, CudaStream stream) const {
  const CopyRange range{tensor.data(), tensor.data(), tensor.num_elements()};
  const GpuPlatform& platform = gpu_platform();
  const CurrentCudaDevice current(*platform.cuda, clique->device(0).ordinal());
  require_cuda(*platform.cuda,
               platform.kernels->copy_ranges({.ranges = std::span<const CopyRange>(&range, 1),
                                              .source_dtype = tensor.dtype(),
                                              .destination_dtype = tensor.dtype(),
                                              .divisor = static_cast<double>(clique->num_ranks()),
                                              .stream = stream}),
               "the dividing kernel");
}

template <class Calls>
void NcclCollectives::State::run(const NcclCall& call, const Buffers& buffers, Calls enqueue) {
  const Tensor& input = buffers.input;
  const TraceSpan span("enqueue communicate", "collective", [&] {
    return TraceArguments{.sequence = call.request.sequence,
                          .num_bytes = input.size_bytes(),
                          .dtype = to_string(input.dtype())};
  });
  GpuLanes lanes;
  lanes.add(input);
  if (buffers.output != nullptr) lanes.add(*buffers.output);
  const CudaStream stream = lanes[0].stream;
  GpuRun run(lanes);
  LaunchOrder::Turn turn;
  compare(call, input, buffers.root, turn);
  const GpuOperation operation{
      .record = {call.request.kind, call.request.sequence, 1, input.size_bytes()},
      .timeout_seconds = call.timeout_seconds,
      .deadline = turn.prolonged(call.request.deadline),
      .listener = late_failures,
      .is_in_place = buffers.is_in_place};
  try {
    run.begin();
    NcclClique::Launch::Plan plan{
        .operation = operation.record, .size_bytes = input.size_bytes(), .dtype = input.dtype()};
    if (!run.is_captured()) {
      // NCCL makes connections when they are first needed, also in later calls: for other algorithms, sizes and partners.
      plan.timeout_seconds = operation.timeout_seconds;
      plan.deadline = operation.deadline;
    }
    NcclClique::Launch launch(*clique, plan);
    run.set_written();
    GpuSpan bar(GpuSpanKind::PART);
    run.begin(bar, clique->device(0), stream);
    try {
      enqueue(launch, stream);
    } catch (...) {
      clique->break_with(std::current_exception());  // says more than the launch that is given up
      throw;
    }
    launch.end();
    bar.end("communicate",
            [&] { return trace_arguments(operation.record, GpuContents::of(input), "nccl"); });
    if (buffers.divided != nullptr) divide(*buffers.divided, stream);
    run.end(operation, GpuContents::of(input), clique);
  } catch (const OpError& error) {
    // The others count on this call, and would take the next one for it.
    clique->break_with(std::current_exception());
    run.rethrow(error, operation, GpuContents::of(input));
  } catch (...) {
    clique->break_with(std::current_exception());
    throw;
  }
}

std::unique_ptr<NcclCollectives> NcclCollectives::make(const std::shared_ptr<Cluster>& cluster,
                                                       const Device& device,
                                                       const Deadline& deadline) {
  OrderedClique made;
  try {
    made = make_ordered_clique(cluster, device, nccl_meeting_deadline(deadline));
  } catch (const UnavailableError& error) {
    announce_fallback(device, error.what());
    return nullptr;
  }
  if (cluster->rank() == 0) {
    log_once("Communicator by NCCL", LogSeverity::INFO,
             "Communicator: nccl, since it serves all workers' GPUs");
  }
  return std::make_unique<NcclCollectives>(
      Passkey(), std::make_unique<State>(cluster, device, std::move(made)));
}

NcclCollectives::NcclCollectives(Passkey /*key*/, std::unique_ptr<State> state)
    : state_(std::move(state)) {}
NcclCollectives::~NcclCollectives() {
  const bool is_watched = state_->clique.use_count() > 1;
  state_ = nullptr;
  // Operations that have come to their end hold the clique, and with it its job, until somebody looks.
  if (is_watched) look_at_watched();
}

const Device& NcclCollectives::device() const { return state_->device; }

bool NcclCollectives::can_reduce(ReduceOp op, DType dtype) const {
  return state_->reduction(op, dtype).has_value();
}

void NcclCollectives::require_usable() const { state_->clique->require_usable(); }

void NcclCollectives::begin_on_hosts(const NcclCall& call, const GroupOperationInfo& operation) {
  state_->calls.begin_on_hosts(pack_operation(operation), call.request.deadline,
                               /*listener=*/nullptr);
}

void NcclCollectives::end_on_hosts() { state_->calls.end_on_hosts(); }

void NcclCollectives::fail_on_hosts(const std::exception_ptr& error) {
  state_->calls.fail_on_hosts(error);
}

void NcclCollectives::all_reduce(const NcclCall& call, const Tensor& input, const Tensor& output) {
  State& state = *state_;
  if (input.num_elements() == 0) return state.compare(call, input, 0);
  const NcclReduction how = state.require_reduction(call.request.op, input.dtype());
  state.run(call, state.buffers_of(call, input, &output),
            [&](NcclClique::Launch& launch, CudaStream stream) {
              launch.require(state.nccl().all_reduce(input.data(), output.data(),
                                                     input.num_elements() * how.parts, how.type,
                                                     how.op, state.comm(), stream),
                             "ncclAllReduce");
            });
}

void NcclCollectives::reduce_scatter(const NcclCall& call, const Tensor& input,
                                     const Tensor& output) {
  State& state = *state_;
  if (input.num_elements() == 0) return state.compare(call, input, 0);
  const NcclReduction how = state.require_reduction(call.request.op, input.dtype());
  state.run(call, state.buffers_of(call, input, &output),
            [&](NcclClique::Launch& launch, CudaStream stream) {
              launch.require(state.nccl().reduce_scatter(input.data(), output.data(),
                                                         output.num_elements() * how.parts,
                                                         how.type, how.op, state.comm(), stream),
                             "ncclReduceScatter");
            });
}

void NcclCollectives::all_gather(const NcclCall& call, const Tensor& input, const Tensor& output) {
  State& state = *state_;
  if (input.num_elements() == 0) return state.compare(call, input, 0);
  state.run(call, {.input = input, .output = &output},
            [&](NcclClique::Launch& launch, CudaStream stream) {
              launch.require(
                  state.nccl().all_gather(input.data(), output.data(), input.size_bytes(), kBytes,
                                          state.comm(), stream),
                  "ncclAllGather");
            });
}

void NcclCollectives::broadcast(const NcclCall& call, const Tensor& tensor, int root) {
  State& state = *state_;
  if (tensor.num_elements() == 0) return state.compare(call, tensor, root);
  state.run(call, {.input = tensor, .root = root, .is_in_place = root != state.rank()},
            [&](NcclClique::Launch& launch, CudaStream stream) {
              launch.require(
                  state.nccl().broadcast(tensor.data(), tensor.data(), tensor.size_bytes(), kBytes,
                                         root, state.comm(), stream),
                  "ncclBroadcast");
            });
}

void NcclCollectives::reduce(const NcclCall& call, const Tensor& input, const Tensor& output,
                             int root) {
  State& state = *state_;
  if (input.num_elements() == 0) return state.compare(call, input, root);
  const NcclReduction how = state.require_reduction(call.request.op, input.dtype());
  const Tensor* const to = root == state.rank() ? &output : nullptr;
  state.run(call, state.buffers_of(call, input, to, root),
            [&](NcclClique::Launch& launch, CudaStream stream) {
              launch.require(state.nccl().reduce(input.data(), to == nullptr ? nullptr : to->data(),
                                                 input.num_elements() * how.parts, how.type, how.op,
                                                 root, state.comm(), stream),
                             "ncclReduce");
            });
}

/// The root's own part is a message to itself, in the same group; none where it lies in its place already.
void NcclCollectives::gather(const NcclCall& call, const Tensor& input, const Tensor& output,
                             int root) {
  State& state = *state_;
  const std::size_t part_bytes = input.size_bytes();
  const bool is_root = root == state.rank();
  const auto part = [&](int rank) {
    return at(output, static_cast<std::size_t>(rank) * part_bytes);
  };
  const bool is_in_its_place = is_root && input.data() == part(root);
  const bool is_nothing_to_do =
      part_bytes == 0 || (is_in_its_place && state.clique->num_ranks() == 1);
  if (is_nothing_to_do) return state.compare(call, input, root);
  state.run(call, {.input = input, .root = root, .output = is_root ? &output : nullptr},
            [&](NcclClique::Launch& launch, CudaStream stream) {
              if (!is_in_its_place) {
                launch.require(
                    state.nccl().send(input.data(), part_bytes, kBytes, root, state.comm(), stream),
                    "ncclSend");
              }
              for (int rank = 0; is_root && rank < state.clique->num_ranks(); ++rank) {
                if (rank == root && is_in_its_place) continue;
                launch.require(state.nccl().receive(part(rank), part_bytes, kBytes, rank,
                                                    state.comm(), stream),
                               "ncclRecv");
              }
            });
}

}  // namespace crossdevice::detail
