// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/nccl_reduce.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/comm/gpu_watchdog.h"
#include "crossdevice/comm/group_operation.h"
#include "crossdevice/comm/nccl_api.h"
#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/fingerprint.h"
#include "crossdevice/core/trace.h"
#include "crossdevice/device/gpu_platform.h"
#include "crossdevice/device/gpu_span.h"

#include "collective/detail/compared_calls.h"
#include "collective/detail/gpu_run.h"
#include "collective/detail/nccl_rounds.h"
#include "collective/detail/nccl_stage.h"

namespace crossdevice {
namespace {

using detail::CopyRange;
using detail::CudaStream;
using detail::CurrentCudaDevice;
using detail::GpuDevice;
using detail::GpuEvent;
using detail::GpuLanes;
using detail::NcclPiece;
using detail::NcclRound;
using detail::NcclRounds;
using detail::NcclStage;

char* at(const Tensor& tensor, std::size_t element) {
  return static_cast<char*>(tensor.data()) + element * size_in_bytes(tensor.dtype());
}

/// What every GPU of the clique can do, those of other workers too: equal on all workers.
std::optional<detail::NcclReduction> reduction_of(const detail::NcclClique& clique, ReduceOp op,
                                                  DType dtype) {
  return detail::nccl_reduction(op, dtype, clique.api().version(), clique.compute_capability());
}

}  // namespace

struct NcclReducer::State {
  Devices devices;
  std::unique_ptr<detail::LaunchOrder> order;  // null: no other worker
  std::shared_ptr<detail::NcclClique> clique;
  std::unique_ptr<NcclStage> stage;  // null until something is staged
  // One for each captured call: graphs may use them at any time, two of them at once, and nobody says when a graph is gone.
  std::vector<std::unique_ptr<NcclStage>> captured_stages;
  // Of the operation under way; their memory is kept.
  NcclRounds rounds;
  std::vector<TensorSize> sizes;
  std::vector<CopyRange> ranges;

  std::unique_ptr<detail::ComparedCalls> calls;  // null: this process alone. Ends first

  NcclStage& stage_for(bool is_captured);
  void compare(const NcclReduceRequest& request, const Deadline& deadline,
               detail::LaunchOrder::Turn& turn);
  void give_up_for_others();
  [[nodiscard]] detail::ComparedCalls& compared_calls() const;
};

NcclStage& NcclReducer::State::stage_for(bool is_captured) {
  if (is_captured) {
    captured_stages.push_back(std::make_unique<NcclStage>(devices));
    return *captured_stages.back();
  }
  if (stage == nullptr) stage = std::make_unique<NcclStage>(devices);
  return *stage;
}

/// Of all that the call itself waits for, from now on: whoever says only how long the operation may take means that, too.
Deadline deadline_of(const GpuOperation& operation) {
  return Deadline::earlier(operation.deadline,
                           Deadline::after_timeout_seconds(operation.timeout_seconds));
}

/// What must be equal on all workers.
GroupOperation call_of(const NcclReduceRequest& request, std::span<const TensorSize> sizes) {
  Fingerprint fingerprint;
  fingerprint.add(request.fingerprint);
  fingerprint.add(request.bytes_per_pack);
  fingerprint.add(request.packs.size());
  std::size_t size_bytes = 0;
  for (const TensorSize& size : sizes) {
    fingerprint.add(static_cast<std::uint64_t>(size.dtype));
    fingerprint.add(size.num_elements);
    size_bytes += size.num_elements * size_in_bytes(size.dtype);
  }
  for (const Pack& pack : request.packs) fingerprint.add(pack.ranges.size());
  const OperationRecord& record = request.operation.record;
  return pack_operation({.kind = request.kind.empty() ? record.kind : request.kind,
                         .reduce_op = request.op,
                         .dtype = sizes.empty() ? DType::FLOAT32 : sizes[0].dtype,
                         .num_values = sizes.size(),
                         .size_bytes = size_bytes,
                         .fingerprint = fingerprint.value(),
                         .sequence = record.sequence});
}

void NcclReducer::State::compare(const NcclReduceRequest& request, const Deadline& deadline,
                                 detail::LaunchOrder::Turn& turn) {
  if (calls == nullptr) return;
  calls->compare(call_of(request, sizes), deadline, request.operation.listener, turn);
}

detail::ComparedCalls& NcclReducer::State::compared_calls() const {
  if (calls == nullptr) throw InternalError("a call for the hosts of several workers, of one");
  return *calls;
}

/// Other workers count on all rounds of this call, of which some may have been launched, and would take the next call for it. Within a process a round is
/// launched on all GPUs or on none.
void NcclReducer::State::give_up_for_others() {
  if (calls != nullptr) clique->break_with(std::current_exception());
}

namespace {

/// The rounds of one operation on their way: each device's stream packs and unpacks; NCCL works on the same stream, or, where there are several staged
/// rounds, on the stage's, so that round k + 1 is packed into one buffer while NCCL reduces round k in the other.
///
/// Order on a device's stream: pack 0, pack 1, unpack 0, pack 2, unpack 1, ... A buffer is packed again behind the unpacking of what it held, on the
/// same stream; NCCL's stream waits for each packing but for no unpacking, each unpacking waits for NCCL's stream.
class RoundPipeline {
 public:
  struct Parts {
    const NcclReduceRequest& request;
    detail::NcclClique& clique;
    const GpuLanes& lanes;
    const NcclRounds& rounds;
    NcclStage* stage;   // null: nothing is staged
    bool shares_stage;  // with operations before and after this one
    Deadline deadline;  // of all launches
    detail::GpuRun& run;
    std::vector<CopyRange>& ranges;
  };

  explicit RoundPipeline(const Parts& parts)
      : parts_(parts),
        has_own_stream_(parts.stage != nullptr && parts.rounds.num_staged_rounds() > 1),
        divisor_(parts.request.op == ReduceOp::MEAN && !is(NcclPattern::BROADCAST)
                     ? static_cast<double>(parts.clique.num_ranks())
                     : 1.0) {}

  void run() {
    try {
      enqueue();
    } catch (...) {
      give_up();
      throw;
    }
  }

 private:
  void enqueue() {
    const std::span<const NcclRound> rounds = parts_.rounds.rounds;
    if (parts_.shares_stage) order_behind_stage();
    for (std::size_t k = 0; k < rounds.size(); ++k) {
      pack(k);
      communicate(k);
      if (k > 0) unpack(k - 1);
    }
    unpack(rounds.size() - 1);
    if (parts_.shares_stage) order_stage_behind();
  }
  /// Half way: what comes next in the buffers, if only their end, comes behind what has been enqueued.
  void give_up() const noexcept {
    try {
      for (std::size_t i = 0; i < num_devices(); ++i) hold_back(i, stream(i), nccl_stream(i));
      if (parts_.shares_stage) order_stage_behind();
    } catch (...) {  // NOLINT(bugprone-empty-catch)
      // The error that left the operation half way is on its way already.
    }
  }
  [[nodiscard]] std::size_t num_devices() const {
    return static_cast<std::size_t>(parts_.clique.size());
  }
  [[nodiscard]] bool is(NcclPattern pattern) const { return parts_.request.pattern == pattern; }
  /// Whether device `i` has elements to give.
  [[nodiscard]] bool has_input(std::size_t i) const {
    return i == 0 || !is(NcclPattern::BROADCAST);
  }
  /// Whether device `i` gets any. In a broadcast the first one has them already.
  [[nodiscard]] bool gets_output(std::size_t i) const {
    switch (parts_.request.pattern) {
      case NcclPattern::ALL_REDUCE:
        return true;
      case NcclPattern::REDUCE:
        return i == 0;
      case NcclPattern::BROADCAST:
        return i != 0;
    }
    return true;
  }
  [[nodiscard]] GpuDevice& device(std::size_t i) const {
    return parts_.clique.device(static_cast<int>(i));
  }
  [[nodiscard]] CudaStream stream(std::size_t i) const {
    return parts_.lanes[parts_.lanes.index_of(device(i))].stream;
  }
  [[nodiscard]] CudaStream nccl_stream(std::size_t i) const {
    return has_own_stream_ ? stage().stream(i) : stream(i);
  }
  [[nodiscard]] NcclStage& stage() const {
    if (parts_.stage == nullptr) throw InternalError("a round is staged that has no buffer");
    return *parts_.stage;
  }
  [[nodiscard]] const NcclRound& round(std::size_t k) const { return parts_.rounds.rounds[k]; }
  [[nodiscard]] char* staged(std::size_t k, std::size_t i, const NcclPiece& piece) const {
    return stage().buffer(i, k % 2) + piece.offset_bytes;
  }
  [[nodiscard]] const Tensor& input(const NcclPiece& piece, std::size_t i) const {
    return parts_.request.tensors[piece.range.tensor].inputs[i];
  }
  [[nodiscard]] const Tensor& output(const NcclPiece& piece, std::size_t i) const {
    const auto& [inputs, outputs] = parts_.request.tensors[piece.range.tensor];
    if (i < outputs.size()) {  // mostly in the inputs' order, or the inputs themselves
      const Tensor& likely = outputs[i];
      if ((i < inputs.size() && likely.is_same(inputs[i])) ||
          &GpuDevice::of(likely.device()) == &device(i)) {
        return likely;
      }
    }
    for (const Tensor& each : outputs) {
      if (&GpuDevice::of(each.device()) == &device(i)) return each;
    }
    throw InternalError(fmt::format("no output on GPU {}", device(i).ordinal()));
  }

  void order_behind_stage() const {
    for (std::size_t i = 0; i < num_devices(); ++i) {
      hold_back(i, stream(i), stage().stream(i));
    }
  }
  void order_stage_behind() const {
    for (std::size_t i = 0; i < num_devices(); ++i) {
      hold_back(i, stage().stream(i), stream(i));
    }
  }
  [[nodiscard]] TraceSpan enqueues(const char* what, std::size_t k) const {
    return TraceSpan(what, "collective", [this, k] { return arguments_of(k); });
  }
  [[nodiscard]] TraceArguments arguments_of(std::size_t k) const {
    return {.sequence = parts_.request.operation.record.sequence,
            .num_bytes = size_bytes_of(k),
            .dtype = to_string(round(k).dtype),
            .algorithm = "nccl"};
  }
  /// Of one replica.
  [[nodiscard]] std::size_t size_bytes_of(std::size_t k) const {
    std::size_t num_elements = 0;
    for (const NcclPiece& piece : parts_.rounds.pieces_of(round(k))) {
      num_elements += piece.range.count;
    }
    return num_elements * size_in_bytes(round(k).dtype);
  }
  void pack(std::size_t k);
  void communicate(std::size_t k);
  [[nodiscard]] detail::NcclClique::Launch::Plan plan_of(std::size_t k) const;
  /// Where a device has elements of a call, and where they go.
  struct Place {
    const void* from;
    void* to;
  };
  [[nodiscard]] Place place_of(const NcclPiece& piece, std::size_t i) const;
  [[nodiscard]] detail::NcclReduction elements_of(DType dtype) const;
  [[nodiscard]] detail::NcclStatus call(const Place& place, std::size_t count,
                                        const detail::NcclReduction& how, std::size_t i) const;
  void unpack(std::size_t k);
  void copy_ranges(std::size_t i, const char* what, std::size_t k, double divisor);
  void end(detail::GpuSpan& span, const char* what, std::size_t k) const {
    span.end(what, [this, k] { return arguments_of(k); });
  }
  void hold_back(std::size_t i, CudaStream later, CudaStream earlier) const;

  Parts parts_;
  bool has_own_stream_;
  double divisor_;
};

/// What `later` is given from now on runs behind what `earlier`, of the same device, has been given.
void RoundPipeline::hold_back(std::size_t i, CudaStream later, CudaStream earlier) const {
  if (later == earlier) return;
  const CurrentCudaDevice current(device(i).cuda(), device(i).ordinal());
  GpuEvent::record(device(i), earlier).hold_back(later);
}

/// Of round k on device `i`, as `what`.
void RoundPipeline::copy_ranges(std::size_t i, const char* what, std::size_t k, double divisor) {
  if (parts_.ranges.empty()) return;
  detail::GpuSpan span(detail::GpuSpanKind::PART);
  parts_.run.begin(span, device(i), stream(i));
  const detail::GpuPlatform& platform = detail::gpu_platform();
  const CurrentCudaDevice current(*platform.cuda, device(i).ordinal());
  require_cuda(*platform.cuda,
               platform.kernels->copy_ranges({.ranges = parts_.ranges,
                                              .source_dtype = round(k).dtype,
                                              .destination_dtype = round(k).dtype,
                                              .divisor = divisor,
                                              .stream = stream(i)}),
               "the packing kernel");
  end(span, what, k);
}

void RoundPipeline::pack(std::size_t k) {
  const TraceSpan span = enqueues("enqueue pack", k);
  for (std::size_t i = 0; i < num_devices(); ++i) {
    if (!has_input(i)) continue;
    parts_.ranges.clear();
    for (const NcclPiece& piece : parts_.rounds.pieces_of(round(k))) {
      if (!piece.is_staged) continue;
      parts_.ranges.push_back(
          {at(input(piece, i), piece.range.begin), staged(k, i, piece), piece.range.count});
    }
    copy_ranges(i, "pack", k, 1);
  }
}

/// Of a piece that is not staged.
RoundPipeline::Place RoundPipeline::place_of(const NcclPiece& piece, std::size_t i) const {
  char* const in = has_input(i) ? at(input(piece, i), piece.range.begin) : nullptr;
  char* const out = gets_output(i) ? at(output(piece, i), piece.range.begin) : nullptr;
  if (is(NcclPattern::BROADCAST)) return i == 0 ? Place{in, in} : Place{out, out};
  return {in, out};
}

/// What moves without being reduced is bytes to NCCL, which knows fewer dtypes than we.
detail::NcclReduction RoundPipeline::elements_of(DType dtype) const {
  if (is(NcclPattern::BROADCAST)) {
    return {.type = detail::NcclDataType::UINT8, .parts = size_in_bytes(dtype)};
  }
  return *reduction_of(parts_.clique, parts_.request.op, dtype);
}

/// For `count` elements of ours on device `i`.
detail::NcclStatus RoundPipeline::call(const Place& place, std::size_t count,
                                       const detail::NcclReduction& how, std::size_t i) const {
  const int root = parts_.clique.rank(0);
  detail::NcclApi& nccl = parts_.clique.api();
  const detail::NcclComm comm = parts_.clique.communicator(static_cast<int>(i));
  count *= how.parts;
  switch (parts_.request.pattern) {
    case NcclPattern::ALL_REDUCE:
      return nccl.all_reduce(place.from, place.to, count, how.type, how.op, comm, nccl_stream(i));
    case NcclPattern::REDUCE:
      return nccl.reduce(place.from, place.to, count, how.type, how.op, root, comm, nccl_stream(i));
    case NcclPattern::BROADCAST:
      return nccl.broadcast(place.from, place.to, count, how.type, root, comm, nccl_stream(i));
  }
  return detail::NcclStatus::INVALID_ARGUMENT;
}

/// As NCCL calls it.
const char* name_of(NcclPattern pattern) {
  switch (pattern) {
    case NcclPattern::ALL_REDUCE:
      return "ncclAllReduce";
    case NcclPattern::REDUCE:
      return "ncclReduce";
    case NcclPattern::BROADCAST:
      return "ncclBroadcast";
  }
  return "ncclAllReduce";
}

detail::NcclClique::Launch::Plan RoundPipeline::plan_of(std::size_t k) const {
  const GpuOperation& operation = parts_.request.operation;
  detail::NcclClique::Launch::Plan plan{
      .operation = operation.record, .size_bytes = size_bytes_of(k), .dtype = round(k).dtype};
  if (parts_.run.is_captured()) return plan;
  plan.timeout_seconds = operation.timeout_seconds;
  plan.deadline = parts_.deadline;
  return plan;
}

void RoundPipeline::communicate(std::size_t k) {
  const TraceSpan span = enqueues("enqueue communicate", k);
  detail::NcclClique& clique = parts_.clique;
  const DType dtype = round(k).dtype;
  const detail::NcclReduction how = elements_of(dtype);
  for (std::size_t i = 0; i < num_devices(); ++i) hold_back(i, nccl_stream(i), stream(i));
  detail::GpuSpan bar(detail::GpuSpanKind::PART);
  for (std::size_t i = 0; i < num_devices(); ++i) {
    parts_.run.begin(bar, device(i), nccl_stream(i));
  }
  // NCCL makes connections when they are first needed, also in later calls, for other algorithms and sizes, and waits there for the other workers.
  detail::NcclClique::Launch launch(clique, plan_of(k));
  for (const NcclPiece& piece : parts_.rounds.pieces_of(round(k))) {
    // Where a group is given up NCCL may have launched a part of it.
    if (!piece.is_staged) parts_.run.set_written();
  }
  for (std::size_t i = 0; i < num_devices(); ++i) {
    const auto require = [&](const Place& place, std::size_t count) {
      launch.require(call(place, count, how, i), name_of(parts_.request.pattern));
    };
    if (round(k).staged_bytes != 0) {
      char* const buffer = stage().buffer(i, k % 2);
      require({buffer, buffer}, round(k).staged_bytes / size_in_bytes(dtype));
    }
    for (const NcclPiece& piece : parts_.rounds.pieces_of(round(k))) {
      if (!piece.is_staged) require(place_of(piece, i), piece.range.count);
    }
  }
  launch.end();
  end(bar, "communicate", k);
}

void RoundPipeline::unpack(std::size_t k) {
  const TraceSpan span = enqueues("enqueue unpack", k);
  for (std::size_t i = 0; i < num_devices(); ++i) {
    hold_back(i, stream(i), nccl_stream(i));
    if (!gets_output(i)) continue;
    parts_.ranges.clear();
    for (const NcclPiece& piece : parts_.rounds.pieces_of(round(k))) {
      char* const to = at(output(piece, i), piece.range.begin);
      if (piece.is_staged) {
        parts_.ranges.push_back({staged(k, i, piece), to, piece.range.count});
      } else if (divisor_ != 1) {
        parts_.ranges.push_back({to, to, piece.range.count});
      }
    }
    if (!parts_.ranges.empty()) parts_.run.set_written();
    copy_ranges(i, "unpack", k, divisor_);
  }
}

}  // namespace

NcclReducer::NcclReducer(const Devices& devices) : state_(std::make_unique<State>()) {
  state_->devices = devices;
  state_->clique = detail::NcclClique::of(devices);
}

NcclReducer::NcclReducer(const std::shared_ptr<Cluster>& cluster, const Devices& local,
                         const Deadline& deadline)
    : state_(std::make_unique<State>()) {
  state_->devices = local;
  detail::OrderedClique made = detail::make_ordered_clique(cluster, local, deadline);
  state_->order = std::move(made.order);
  state_->clique = std::move(made.clique);
  if (cluster->num_workers() == 1) return;
  state_->calls =
      std::make_unique<detail::ComparedCalls>(cluster, state_->order.get(), *state_->clique);
}

NcclReducer::~NcclReducer() {
  const bool is_watched = state_->clique.use_count() > 1;
  state_ = nullptr;
  // Operations that have come to their end hold the clique, and with it its job, until somebody looks.
  if (is_watched) detail::look_at_watched();
}

const Devices& NcclReducer::devices() const { return state_->devices; }

bool NcclReducer::can_reduce(ReduceOp op, DType dtype) const {
  return reduction_of(*state_->clique, op, dtype).has_value();
}

void NcclReducer::begin_on_hosts(const GroupOperationInfo& call, const GpuOperation& operation) {
  state_->compared_calls().begin_on_hosts(pack_operation(call), deadline_of(operation),
                                          operation.listener);
}

void NcclReducer::continue_on_hosts() { state_->compared_calls().continue_on_hosts(); }

void NcclReducer::end_on_hosts() { state_->compared_calls().end_on_hosts(); }

void NcclReducer::fail_on_hosts(const std::exception_ptr& error) {
  state_->compared_calls().fail_on_hosts(error);
}

void NcclReducer::require_usable() const { state_->clique->require_usable(); }

void NcclReducer::reduce(const NcclReduceRequest& request) {
  State& state = *state_;
  if (state.calls != nullptr && request.pattern != NcclPattern::ALL_REDUCE) {
    throw InternalError("half of an all-reduce was asked of the communicators of several workers");
  }
  state.clique->require_usable();
  state.sizes.clear();
  GpuLanes lanes;
  for (const GpuReduceTensor& tensor : request.tensors) {
    state.sizes.push_back({tensor.inputs[0].dtype(), tensor.inputs[0].num_elements()});
    lanes.add(tensor.inputs, tensor.outputs);
  }
  detail::make_nccl_rounds(state.sizes, request.packs, request.bytes_per_pack, state.rounds);
  detail::LaunchOrder::Turn turn;
  const Deadline deadline = deadline_of(request.operation);
  if (state.rounds.rounds.empty()) return state.compare(request, deadline, turn);
  detail::GpuRun run(lanes);
  state.compare(request, deadline, turn);
  try {
    NcclStage* stage = nullptr;
    if (const std::size_t bytes = state.rounds.staging_bytes(); bytes != 0) {
      std::optional<detail::BesideCaptures> beside;
      if (run.is_captured()) beside.emplace(state.clique->device(0).cuda());
      stage = &state.stage_for(run.is_captured());
      stage->require_bytes(bytes);
      if (run.is_captured()) stage->wait_for_memory(turn.prolonged(deadline));
    }
    run.begin();
    RoundPipeline({.request = request,
                   .clique = *state.clique,
                   .lanes = lanes,
                   .rounds = state.rounds,
                   .stage = stage,
                   .shares_stage = stage != nullptr && !run.is_captured(),
                   .deadline = turn.prolonged(deadline),
                   .run = run,
                   .ranges = state.ranges})
        .run();
    run.end(request.operation, detail::GpuContents::of(request.tensors), state.clique);
  } catch (const OpError& error) {
    state.give_up_for_others();
    run.rethrow(error, request.operation, detail::GpuContents::of(request.tensors));
  } catch (...) {
    state.give_up_for_others();
    throw;
  }
}

}  // namespace crossdevice
