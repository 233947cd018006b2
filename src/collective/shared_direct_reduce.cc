// SPDX-License-Identifier: Apache-2.0
/// Why no two workers race. All announce what they are about to do and where their buffers lie, and nobody touches a buffer of another before all have
/// announced (SharedMemoryGroup::await_announcements: acquire). They then build the same plan from the same sizes, and each runs its
/// share of the chunks, so for each element one worker reads it in every input and writes it in every output; see direct_reduce.cc for why that is
/// all. Nobody returns before all have finished (await_ends), so a caller's next write comes after every other worker's last read.
/// Of memory that the others cannot map, what is theirs to reduce is staged; see SharedBatch.
#include "crossdevice/collective/shared_direct_reduce.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <sched.h>

#include "crossdevice/collective/direct_reduce.h"
#include "crossdevice/collective/reduction_span.h"
#include "crossdevice/comm/shared_memory_group.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/export.h"
#include "crossdevice/core/inline_vector.h"
#include "crossdevice/core/log.h"
#include "crossdevice/device/copy.h"
#include "crossdevice/device/memory_pool.h"
#include "crossdevice/device/reduce_kernel.h"

#include "collective/detail/batch_size.h"
#include "collective/detail/call_details.h"
#include "collective/detail/inline_batch.h"
#include "collective/detail/repeated_value.h"
#include "collective/detail/shared_batch.h"
#include "collective/detail/shared_location.h"
#include "collective/detail/slot_stream.h"

namespace crossdevice {
namespace {

constexpr std::size_t kSlotBytes = std::size_t{256} << 10;
constexpr const char* kNotWithdrawn =
    "; no memory to move its buffers to: another worker may still write into them";

/// How a shared tensor is announced.
struct TensorHead {
  SharedLocation location;
  std::uint32_t dtype = 0;
  std::uint32_t rank = 0;
};

/// Whether the order and grouping of inputs decide the bits of a result.
bool depends_on_grouping(ReduceOp op, DType dtype) {
  const bool is_ordered = op == ReduceOp::SUM || op == ReduceOp::MEAN || op == ReduceOp::PROD;
  return is_ordered && (is_floating(dtype) || is_complex(dtype));
}

/// A batch of more buffers than one announcement has room for.
void reduce_in_halves(SharedDirectReduce& engine, const CollectiveRequest& request,
                      std::span<const CollectiveValue> values, std::uint64_t fingerprint) {
  if (values.size() == 1) throw ValueError("too many buffers for one reduction among workers");
  const std::span<const CollectiveValue> first_half = values.first(values.size() / 2);
  CollectiveRequest part = request;
  part.fingerprint = fingerprint;
  engine.all_reduce(part, first_half);
  try {
    engine.all_reduce(part, values.subspan(first_half.size()));
  } catch (const OpError& error) {
    if (detail::is_in_place(first_half)) throw_with_inputs_changed(error);
    throw;
  }
}

std::size_t bytes_of(std::span<const Tensor> tensors) {
  std::size_t sum = 0;
  for (const Tensor& each : tensors) sum += each.size_bytes();
  return sum;
}

/// Of one replica's values, as evenly as they are shared out.
std::size_t share_bytes(const detail::SharedBatch::WindowTensors& all) {
  std::size_t sum = 0;
  for (const DirectReduceTensor& each : all.tensors) {
    sum += each.num_elements * size_in_bytes(each.dtype);
  }
  return sum / all.share.count;
}

bool is_single_threaded(int num_workers) {
  cpu_set_t mask;
  return ::sched_getaffinity(0, sizeof mask, &mask) != 0 || CPU_COUNT(&mask) <= num_workers;
}

}  // namespace

struct CROSSDEVICE_HIDDEN SharedDirectReduce::State {
  SharedMemoryGroup group;

  // Scratch of the operation under way; kept, so that the next one allocates nothing.
  detail::SharedBatch batch;
  std::vector<Tensor> shown;  // or copies of them, while others may read them
  detail::InlineBatch inline_batch;
  std::vector<const std::byte*> blocks;  // by rank
  detail::RepeatedValue along;           // what came along last
  // Of a deterministic operation, where each worker's own inputs are combined before.
  std::vector<Tensor> combined;
  std::vector<CollectiveValue> prepared;  // values of combined inputs first
  std::size_t num_combined = 0;

  State(std::shared_ptr<Cluster> cluster, const std::vector<RankInfo>& names,
        const Deadline& deadline)
      : group(std::move(cluster), kSlotBytes, names, deadline),
        batch(group, is_single_threaded(group.num_workers())),
        blocks(static_cast<std::size_t>(group.num_workers())) {}

  [[nodiscard]] SharedLocation expose(const Tensor& tensor);
  void begin();
  [[nodiscard]] std::span<const CollectiveValue> prepare(const CollectiveRequest& request,
                                                         std::span<const CollectiveValue> values);
  void divide(const CollectiveRequest& request, std::span<const CollectiveValue> values) const;
  [[nodiscard]] static bool comes_along(std::span<const CollectiveValue> values) {
    return values.size() == 1 && values[0].inputs.size() == 1 &&
           values[0].inputs[0].size_bytes() <= SharedMemoryGroup::kHeadBytes;
  }
  void reduce_along(const CollectiveRequest& request, const CollectiveValue& value,
                    const GroupOperationInfo* unless_repeated);
  void repeat(const CollectiveRequest& request, std::span<const CollectiveValue> values);
  void reduce_inline(const CollectiveRequest& request, std::span<const CollectiveValue> values,
                     const GroupOperationInfo& info);
  void reduce_in_place(const CollectiveRequest& request, std::span<const CollectiveValue> values,
                       const GroupOperationInfo& info);
  void reduce_share(const CollectiveRequest& request, std::span<const DirectReduceTensor> all,
                    std::size_t num_sums, const DirectReduceShare& share) const;
  [[noreturn]] void throw_late(const CollectiveRequest& request, std::string_view did) const;
  [[nodiscard]] std::vector<std::vector<RemoteTensor>> show(const CollectiveRequest& request,
                                                            const GroupOperationInfo& info,
                                                            std::span<const Tensor> own);
  [[nodiscard]] bool withdraw() const;
  /// Where calls differ, how; else what `error` says.
  [[nodiscard]] std::string text_of(const OpError& error, const CollectiveRequest& request,
                                    std::span<const CollectiveValue> values);
  template <class Body>
  void run(const CollectiveRequest& request, std::span<const CollectiveValue> values,
           const bool& was_announced, const Body& body);
};

void SharedDirectReduce::State::begin() {
  batch.clear();
  shown.clear();
  combined.clear();
  prepared.clear();
  num_combined = 0;
}

/// What is reduced among workers in a deterministic operation of several inputs each: where that decides the bits, each worker's own have been combined and
/// stored, as they are over a transport.
std::span<const CollectiveValue> SharedDirectReduce::State::prepare(
    const CollectiveRequest& request, std::span<const CollectiveValue> values) {
  const ReduceOp op = request.op == ReduceOp::MEAN ? ReduceOp::SUM : request.op;
  const auto is_combined = [&](const CollectiveValue& value) {
    return depends_on_grouping(request.op, value.inputs[0].dtype());
  };
  combined.reserve(values.size());  // spans point into it
  prepared.reserve(values.size());
  for (const CollectiveValue& value : values) {
    if (!is_combined(value)) continue;
    const Tensor& first = value.inputs[0];
    combined.push_back(Tensor::empty(first.dtype(), first.shape(), first.device()));
    detail::InlineVector<const void*, 8> parts;
    for (const Tensor& input : value.inputs) parts.push_back(input.data());
    void* const results[] = {combined.back().data()};
    const DirectReduceTensor tensor{
        first.dtype(), first.num_elements(), {parts.data(), parts.size()}, results};
    (void)direct_reduce({.op = op, .tensors = std::span<const DirectReduceTensor>(&tensor, 1)});
    prepared.push_back({std::span<const Tensor>(&combined.back(), 1), value.outputs});
  }
  num_combined = prepared.size();
  for (const CollectiveValue& value : values) {
    if (!is_combined(value)) prepared.push_back(value);
  }
  return prepared;
}

/// What is left of a mean of combined inputs: this worker's outputs hold sums.
void SharedDirectReduce::State::divide(const CollectiveRequest& request,
                                       std::span<const CollectiveValue> values) const {
  if (request.op != ReduceOp::MEAN) return;
  const auto divisor = static_cast<double>(values[0].inputs.size()) * group.num_workers();
  for (const CollectiveValue& value : std::span(prepared).first(num_combined)) {
    for (const Tensor& output : value.outputs) {
      divide_elements(output.dtype(), output.data(), output.num_elements(), divisor);
    }
  }
}

/// Where the others may read a tensor's elements: in its own memory, or in a copy that they can reach.
SharedLocation SharedDirectReduce::State::expose(const Tensor& tensor) {
  if (tensor.size_bytes() == 0) return {};
  if (const std::optional<SharedLocation> location = detail::locate(tensor)) {
    shown.push_back(tensor);
    return *location;
  }
  const Tensor& staged =
      shown.emplace_back(Tensor::empty(tensor.dtype(), tensor.shape(), tensor.device()));
  copy(staged, tensor);
  return detail::require_location(staged);
}

/// A value that needs no slot. `unless_repeated`: what it is; null: what `along` describes.
void SharedDirectReduce::State::reduce_along(const CollectiveRequest& request,
                                             const CollectiveValue& value,
                                             const GroupOperationInfo* unless_repeated) {
  const bool is_repeated = unless_repeated == nullptr;
  if (!is_repeated) along.describe(request, value, *unless_repeated);
  const Tensor& input = value.inputs[0];
  group.announce(along.operation(), request.sequence, SharedMemoryGroup::Touches::SLOTS,
                 {static_cast<const std::byte*>(input.data()), input.size_bytes()});
  // While the others' lines are on their way.
  if (!is_repeated) along.describe_reduction(inline_batch, request.op, value);
  const detail::InlineBatch::Reduction& reduction = along.reduction_of(value, group.heads());
  group.await_announcements(request.deadline);
  // To the end, whatever the deadline: whoever has come this far has all it needs, and half a result is none.
  reduction.run();
}

void SharedDirectReduce::State::repeat(const CollectiveRequest& request,
                                       std::span<const CollectiveValue> values) {
  group.require_whole();
  const detail::ReductionSpan span(detail::kSharedMemoryReduction, along.size_bytes(),
                                   along.dtype());
  run(request, values, /*was_announced=*/false, [&] { reduce_along(request, values[0], nullptr); });
}

void SharedDirectReduce::State::reduce_inline(const CollectiveRequest& request,
                                              std::span<const CollectiveValue> values,
                                              const GroupOperationInfo& info) {
  detail::fill_inline_block(values, group.slot().data());
  group.announce(info, request.sequence, SharedMemoryGroup::Touches::SLOTS);
  for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
    blocks[rank] = group.slot_of(static_cast<int>(rank)).data();
  }
  group.await_announcements(request.deadline);
  // To the end, as above.
  inline_batch.reduce(request.op, num_combined, values, blocks);
}

/// The first `num_sums` tensors hold combinations already, of which a mean is the sum; see divide().
///
/// Errors   DeadlineExceededError: some of this worker's share is not done.
void SharedDirectReduce::State::reduce_share(const CollectiveRequest& request,
                                             std::span<const DirectReduceTensor> all,
                                             std::size_t num_sums,
                                             const DirectReduceShare& share) const {
  const auto reduce_some = [&](ReduceOp op, std::span<const DirectReduceTensor> some) {
    if (some.empty()) return;
    const DirectReduceRequest direct{.op = op,
                                     .first_group = 0,
                                     .tensors = some,
                                     .packs = {},
                                     .deadline = request.deadline,
                                     .observer = nullptr,
                                     .share = share};
    if (direct_reduce(direct) != DirectReduceOutcome::COMPLETED) {
      throw_late(request, "reduced its share");
    }
  };
  reduce_some(request.op == ReduceOp::MEAN ? ReduceOp::SUM : request.op, all.first(num_sums));
  reduce_some(request.op, all.subspan(num_sums));
}

void SharedDirectReduce::State::throw_late(const CollectiveRequest& request,
                                           std::string_view did) const {
  const RankInfo self = group.info();
  throw DeadlineExceededError(fmt::format("{} #{} timed out while this worker, {}, {}",
                                          request.kind, request.sequence, to_string(self), did),
                              {.operation = {}, .culprits = {self}, .inputs_intact = true});
}

void SharedDirectReduce::State::reduce_in_place(const CollectiveRequest& request,
                                                std::span<const CollectiveValue> values,
                                                const GroupOperationInfo& info) {
  {
    const TraceSpan pack = detail::part_span("pack", [&info] { return info.size_bytes; });
    batch.announce(request, values, info);
  }
  std::size_t window = 0;
  const auto window_bytes = [&] { return batch.window_bytes(values, window); };
  for (;; group.announce(info, request.sequence)) {
    group.await_announcements(request.deadline);
    if (window == 0) batch.learn(request, values);
    const detail::SharedBatch::WindowTensors all =
        batch.tensors(request, values, window, num_combined);
    {
      const TraceSpan adds = detail::part_span("reduce share", [&all] { return share_bytes(all); });
      reduce_share(request, all.tensors, all.num_first, all.share);
    }
    group.finish();
    group.await_ends(request.deadline);
    batch.require_unmoved(request);
    {
      const TraceSpan unpack = detail::part_span("unpack", window_bytes);
      batch.empty(values, window);
    }
    if (++window == batch.num_windows()) return;
    {
      const TraceSpan pack = detail::part_span("pack", window_bytes);
      batch.fill(request, values, window);
    }
    batch.require_unmoved(request);
  }
}

/// After a failure: whoever may still write, writes into memory that is not ours any more. Whether that is so of all memory. Only what was announced is
/// written by others, so the blocks beside it need no copy; and no thread of this process loses a write to any of them, see MemorySegment::withdraw.
bool SharedDirectReduce::State::withdraw() const {
  if (!group.may_be_written()) return true;
  bool is_withdrawn = true;
  for (const Tensor& tensor : batch.announced()) {
    try {
      MemoryPool::of(tensor.device()).move_segment(tensor.data());
    } catch (const std::exception& error) {
      is_withdrawn = false;
      log(LogSeverity::FAILURE,
          fmt::format("memory that another worker may still write to could not be moved: {}",
                      error.what()));
    }
  }
  return is_withdrawn;
}

std::string SharedDirectReduce::State::text_of(const OpError& error,
                                               const CollectiveRequest& request,
                                               std::span<const CollectiveValue> values) {
  if (!group.has_found_difference()) return error.what();
  return group.explain_difference(detail::details_of(request, values));
}

/// `body()`, and what an operation ends with. `was_announced`: whether memory was, when the body ends.
template <class Body>
void SharedDirectReduce::State::run(const CollectiveRequest& request,
                                    std::span<const CollectiveValue> values,
                                    const bool& was_announced, const Body& body) {
  try {
    body();
  } catch (const OpError& error) {
    group.fail_alone(error);  // where it has not failed itself
    const bool is_withdrawn = withdraw();
    const bool may_be_changed = was_announced && detail::is_in_place(values) &&
                                (group.may_be_written() || batch.num_emptied() > 0);
    const std::string text = text_of(error, request, values);
    throw_anew(error, is_withdrawn ? text : text + kNotWithdrawn, error.operation(),
               is_withdrawn && !may_be_changed);
  } catch (const std::exception& error) {
    group.fail_alone(error);
    (void)withdraw();
    throw;
  }
  group.leave_operation();
}

SharedDirectReduce::SharedDirectReduce(std::shared_ptr<Cluster> cluster,
                                       const std::vector<RankInfo>& names, const Deadline& deadline)
    : state_(std::make_unique<State>(std::move(cluster), names, deadline)) {}
SharedDirectReduce::~SharedDirectReduce() = default;

void SharedDirectReduce::all_reduce(const CollectiveRequest& request,
                                    std::span<const CollectiveValue> values) {
  if (values.empty()) return;
  if (state_->along.repeats(request, values)) return state_->repeat(request, values);
  const detail::BatchSize size = detail::require_batch(request, values);
  // Equal on all workers, or their operations differ, which they will notice.
  const bool fits_inline = size.inline_bytes <= kInlineBytes;
  if (!fits_inline && detail::SharedBatch::slot_bytes(size.num_tensors) > kSlotBytes) {
    return reduce_in_halves(*this, request, values, size.fingerprint);
  }
  const GroupOperationInfo info{.kind = request.kind,
                                .reduce_op = request.op,
                                .dtype = values[0].inputs[0].dtype(),
                                .num_values = values.size(),
                                .size_bytes = size.size_bytes,
                                .fingerprint = size.fingerprint};
  State& state = *state_;
  state.group.require_whole();  // so the operation before has ended well, with begin()
  const detail::ReductionSpan span(detail::kSharedMemoryReduction, size.size_bytes, info.dtype);
  const bool combines_own =
      request.deterministic && !request.grouping_independent && values[0].inputs.size() > 1;
  bool was_announced = false;
  state.run(request, values, was_announced, [&] {
    const std::span<const CollectiveValue> prepared =
        combines_own ? state.prepare(request, values) : values;
    // Equal on all workers: it depends on what the announcements agree on.
    if (State::comes_along(values)) {
      state.reduce_along(request, values[0], &info);
    } else if (fits_inline) {
      state.reduce_inline(request, prepared, info);
    } else {
      was_announced = true;
      state.reduce_in_place(request, prepared, info);
    }
    if (state.num_combined > 0) state.divide(request, values);
  });
  if (was_announced || combines_own) state.begin();  // lets go of the tensors
}

std::vector<std::vector<RemoteTensor>> SharedDirectReduce::State::show(
    const CollectiveRequest& request, const GroupOperationInfo& info, std::span<const Tensor> own) {
  begin();
  detail::SlotWriter mine(group.slot());
  mine.put(std::uint64_t{own.size()});
  if (!own.empty()) {
    const TraceSpan pack = detail::part_span("pack", [&own] { return bytes_of(own); });
    for (const Tensor& tensor : own) {
      mine.put(TensorHead{expose(tensor), static_cast<std::uint32_t>(tensor.dtype()),
                          static_cast<std::uint32_t>(tensor.shape().rank())});
      for (const std::int64_t dim : tensor.shape().dims()) mine.put(dim);
    }
  }
  group.announce(info, request.sequence);
  group.await_announcements(request.deadline);
  std::vector<std::vector<RemoteTensor>> all(static_cast<std::size_t>(group.num_workers()));
  for (int rank = 0; rank < group.num_workers(); ++rank) {
    detail::SlotReader slot(group.slot_of(rank));
    std::vector<RemoteTensor>& theirs = all[static_cast<std::size_t>(rank)];
    theirs.resize(slot.get<std::uint64_t>());
    for (RemoteTensor& tensor : theirs) {
      const auto head = slot.get<TensorHead>();
      std::vector<std::int64_t> dims(head.rank);
      for (std::int64_t& dim : dims) dim = slot.get<std::int64_t>();
      tensor.dtype = static_cast<DType>(head.dtype);
      tensor.shape = Shape(std::span<const std::int64_t>(dims));
      const std::size_t size_bytes =
          static_cast<std::size_t>(tensor.shape.num_elements()) * size_in_bytes(tensor.dtype);
      if (size_bytes > 0) tensor.data = group.map(rank, head.location, size_bytes);
    }
  }
  return all;
}

std::vector<std::vector<RemoteTensor>> SharedDirectReduce::begin_share(
    const CollectiveRequest& request, const GroupOperationInfo& info,
    std::span<const Tensor> tensors) {
  try {
    return state_->show(request, info, tensors);
  } catch (const OpError& error) {
    state_->group.fail_alone(error);  // where it has not failed itself
    throw_anew(error, state_->text_of(error, request, {}), error.operation(),
               error.inputs_intact());
  } catch (const std::exception& error) {
    state_->group.fail_alone(error);  // where it has not failed itself
    throw;
  }
}

/// Called where `error` is handled.
void SharedDirectReduce::fail_share(const DeadlineExceededError& error) {
  state_->group.fail_alone(error);
  throw;
}

void SharedDirectReduce::throw_late(const CollectiveRequest& request, std::string_view did) const {
  state_->throw_late(request, did);
}

void SharedDirectReduce::while_waiting(std::function<void()> look) {
  state_->group.while_waiting(std::move(look));
}
void SharedDirectReduce::give_up(const std::string& text) { state_->group.give_up(text); }

void SharedDirectReduce::end_share(const CollectiveRequest& request) {
  state_->group.finish();
  state_->group.await_ends(request.deadline);
  state_->group.leave_operation();
  state_->begin();
}

}  // namespace crossdevice
