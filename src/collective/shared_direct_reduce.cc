// SPDX-License-Identifier: Apache-2.0
/// Why no two workers race. All announce what they are about to do and where their buffers lie, and nobody touches a buffer of another before all have
/// announced (SharedMemoryGroup::await_announcements: acquire). They then build the same plan from the same sizes, and each runs its
/// share of the chunks, so for each element one worker reads it in every input and writes it in every output; see direct_reduce.cc for why that is
/// all. Nobody returns before all have finished (await_ends), so a caller's next write comes after every other worker's last read.
#include "crossdevice/collective/shared_direct_reduce.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <sched.h>

#include "crossdevice/collective/direct_reduce.h"
#include "crossdevice/comm/shared_memory_group.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/inline_vector.h"
#include "crossdevice/device/copy.h"
#include "crossdevice/device/memory_pool.h"
#include "crossdevice/device/reduce_kernel.h"

#include "collective/detail/batch_size.h"
#include "collective/detail/inline_batch.h"

namespace crossdevice {
namespace {

constexpr std::size_t kSlotBytes = std::size_t{256} << 10;
/// How a shared tensor is announced.
struct TensorHead {
  SharedLocation location;
  std::uint32_t dtype = 0;
  std::uint32_t rank = 0;
};

/// Writes plain structs one after the other.
class SlotWriter {
 public:
  explicit SlotWriter(std::span<std::byte> slot) : rest_(slot) {}
  template <class T>
  void put(const T& value) {
    if (rest_.size() < sizeof value) throw InternalError("a slot is too small");
    std::memcpy(rest_.data(), &value, sizeof value);
    rest_ = rest_.subspan(sizeof value);
  }

 private:
  std::span<std::byte> rest_;
};

class SlotReader {
 public:
  explicit SlotReader(std::span<const std::byte> slot) : rest_(slot) {}
  template <class T>
  [[nodiscard]] T get() {
    if (rest_.size() < sizeof(T)) throw InternalError("a worker announced more than fits");
    T value;
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_ = rest_.subspan(sizeof value);
    return value;
  }

 private:
  std::span<const std::byte> rest_;
};

/// Whether the order and grouping of inputs decide the bits of a result.
bool depends_on_grouping(ReduceOp op, DType dtype) {
  const bool is_ordered = op == ReduceOp::SUM || op == ReduceOp::MEAN || op == ReduceOp::PROD;
  return is_ordered && (is_floating(dtype) || is_complex(dtype));
}

bool is_single_threaded(int num_workers) {
  cpu_set_t mask;
  return ::sched_getaffinity(0, sizeof mask, &mask) != 0 || CPU_COUNT(&mask) <= num_workers;
}

}  // namespace

struct SharedDirectReduce::State {
  SharedMemoryGroup group;
  bool single_threaded;

  // Scratch of the operation under way; kept, so that the next one allocates nothing.
  struct Staged {
    Tensor original;
    Tensor staging;
    bool is_output = false;
  };
  std::vector<Staged> staged;
  std::vector<Tensor> announced;  // whose memory the others may touch
  std::vector<std::byte*> own;  // this worker's buffers, in the order in which they were announced
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  std::vector<DirectReduceTensor> tensors;
  std::vector<SlotReader> slots;
  detail::InlineBatch inline_batch;
  std::vector<const std::byte*> blocks;
  // Of a deterministic operation, where each worker's own inputs are combined before.
  std::vector<Tensor> combined;
  std::vector<CollectiveValue> prepared;  // values of combined inputs first
  std::size_t num_combined = 0;

  explicit State(std::shared_ptr<Cluster> cluster)
      : group(std::move(cluster), kSlotBytes),
        single_threaded(is_single_threaded(group.num_workers())) {}

  [[nodiscard]] std::optional<SharedLocation> locate(const Tensor& tensor) const;
  [[nodiscard]] SharedLocation expose(const Tensor& tensor, bool is_input, bool is_output);
  void begin();
  [[nodiscard]] std::span<const CollectiveValue> prepare(const CollectiveRequest& request,
                                                         std::span<const CollectiveValue> values);
  void divide(const CollectiveRequest& request, std::span<const CollectiveValue> values) const;
  void reduce_inline(const CollectiveRequest& request, std::span<const CollectiveValue> values,
                     const GroupOperationInfo& info);
  void reduce_in_place(const CollectiveRequest& request, std::span<const CollectiveValue> values,
                       const GroupOperationInfo& info);
  void gather_addresses(const CollectiveRequest& request, std::span<const CollectiveValue> values);
  [[nodiscard]] std::vector<std::vector<RemoteTensor>> show(const CollectiveRequest& request,
                                                            const GroupOperationInfo& info,
                                                            std::span<const Tensor> shown);
  void withdraw() const;
  void run(const CollectiveRequest& request, std::span<const DirectReduceTensor> all,
           const DirectReduceShare& share) const;
};

std::optional<SharedLocation> SharedDirectReduce::State::locate(const Tensor& tensor) const {
  const std::optional<SegmentLocation> found =
      MemoryPool::of(tensor.device()).locate(tensor.data());
  if (!found.has_value() || found->segment_fd < 0) return std::nullopt;
  return SharedLocation{.segment_id = found->segment_id,
                        .segment_size_bytes = found->segment_size_bytes,
                        .offset_bytes = found->offset_bytes,
                        .segment_fd = found->segment_fd};
}

void SharedDirectReduce::State::begin() {
  staged.clear();
  announced.clear();
  own.clear();
  inputs.clear();
  outputs.clear();
  tensors.clear();
  combined.clear();
  prepared.clear();
  num_combined = 0;
}

/// What is reduced among workers. Where that decides the bits of a deterministic operation, each worker's own inputs have been combined and stored, as
/// they are over a transport.
std::span<const CollectiveValue> SharedDirectReduce::State::prepare(
    const CollectiveRequest& request, std::span<const CollectiveValue> values) {
  if (!request.deterministic || values[0].inputs.size() == 1) return values;
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
  if (request.op != ReduceOp::MEAN || num_combined == 0) return;
  const auto divisor = static_cast<double>(values[0].inputs.size()) * group.num_workers();
  for (const CollectiveValue& value : std::span(prepared).first(num_combined)) {
    for (const Tensor& output : value.outputs) {
      divide_elements(output.dtype(), output.data(), output.num_elements(), divisor);
    }
  }
}

/// Where the others find a tensor's elements: in its own memory, or in a buffer that they can reach.
SharedLocation SharedDirectReduce::State::expose(const Tensor& tensor, bool is_input,
                                                 bool is_output) {
  if (tensor.size_bytes() == 0) {
    own.push_back(nullptr);
    return {};
  }
  if (const std::optional<SharedLocation> location = locate(tensor)) {
    announced.push_back(tensor);
    own.push_back(static_cast<std::byte*>(tensor.data()));
    return *location;
  }
  Staged* known = nullptr;
  for (Staged& each : staged) {
    if (each.original.data() == tensor.data()) known = &each;  // an output that is an input
  }
  if (known == nullptr) {
    const Tensor staging = Tensor::empty(tensor.dtype(), tensor.shape(), tensor.device());
    if (is_input) copy(staging, tensor);
    known = &staged.emplace_back(Staged{tensor, staging, false});
    announced.push_back(staging);
  }
  known->is_output |= is_output;
  const std::optional<SharedLocation> location = locate(known->staging);
  if (!location.has_value()) {
    throw FailedPreconditionError("the memory pool has no memory that other processes can map");
  }
  own.push_back(static_cast<std::byte*>(known->staging.data()));
  return *location;
}

void SharedDirectReduce::State::run(const CollectiveRequest& request,
                                    std::span<const DirectReduceTensor> all,
                                    const DirectReduceShare& share) const {
  const auto reduce = [&](ReduceOp op, std::span<const DirectReduceTensor> some) {
    if (some.empty()) return;
    const DirectReduceRequest direct{.op = op,
                                     .first_group = 0,
                                     .tensors = some,
                                     .packs = {},
                                     .deadline = request.deadline,
                                     .observer = nullptr,
                                     .share = share};
    // A deadline that passes here is noticed where this worker waits for the others.
    (void)direct_reduce(direct);
  };
  reduce(request.op == ReduceOp::MEAN ? ReduceOp::SUM : request.op, all.first(num_combined));
  reduce(request.op, all.subspan(num_combined));
}

void SharedDirectReduce::State::reduce_inline(const CollectiveRequest& request,
                                              std::span<const CollectiveValue> values,
                                              const GroupOperationInfo& info) {
  detail::fill_inline_block(values, group.slot().data());
  group.announce(info, request.sequence);
  group.await_announcements(request.deadline);
  blocks.clear();
  for (int rank = 0; rank < group.num_workers(); ++rank) {
    blocks.push_back(group.slot_of(rank).data());
  }
  run(request, inline_batch.tensors(values, blocks), {});
}

void SharedDirectReduce::State::reduce_in_place(const CollectiveRequest& request,
                                                std::span<const CollectiveValue> values,
                                                const GroupOperationInfo& info) {
  SlotWriter mine(group.slot());
  for (const CollectiveValue& value : values) {
    for (const Tensor& input : value.inputs) mine.put(expose(input, true, false));
    for (const Tensor& output : value.outputs) mine.put(expose(output, false, true));
  }
  group.announce(info, request.sequence);
  group.await_announcements(request.deadline);
  gather_addresses(request, values);
  run(request, tensors,
      {.index = static_cast<std::size_t>(group.rank()),
       .count = static_cast<std::size_t>(group.num_workers()),
       .is_single_threaded = single_threaded});
  group.finish();
  group.await_ends(request.deadline);
  for (const Staged& each : staged) {
    if (each.is_output) copy(each.original, each.staging);
  }
}

/// Everybody's buffers, in this process's addresses.
void SharedDirectReduce::State::gather_addresses(const CollectiveRequest& request,
                                                 std::span<const CollectiveValue> values) {
  const int num_workers = group.num_workers();
  slots.clear();
  for (int rank = 0; rank < num_workers; ++rank) slots.emplace_back(group.slot_of(rank));
  std::size_t next_own = 0;
  // What is this worker's own keeps its address here.
  const auto next_address = [&](int rank, std::size_t size_bytes) -> std::byte* {
    const auto location = slots[static_cast<std::size_t>(rank)].get<SharedLocation>();
    if (rank == group.rank()) return own[next_own++];
    return size_bytes == 0 ? nullptr : group.map(rank, location, size_bytes);
  };
  for (const CollectiveValue& value : values) {
    const Tensor& first = value.inputs[0];
    const std::size_t output_bytes =
        first.num_elements() * size_in_bytes(result_dtype(request.op, first.dtype()));
    for (int rank = 0; rank < num_workers; ++rank) {
      for (std::size_t i = 0; i < value.inputs.size(); ++i) {
        inputs.push_back(next_address(rank, first.size_bytes()));
      }
      for (std::size_t i = 0; i < value.outputs.size(); ++i) {
        outputs.push_back(next_address(rank, output_bytes));
      }
    }
  }
  // Spans only now, that the vectors grow no more.
  std::size_t first_input = 0;
  std::size_t first_output = 0;
  for (const CollectiveValue& value : values) {
    const std::size_t num_inputs = value.inputs.size() * static_cast<std::size_t>(num_workers);
    const std::size_t num_outputs = value.outputs.size() * static_cast<std::size_t>(num_workers);
    tensors.push_back({value.inputs[0].dtype(), value.inputs[0].num_elements(),
                       std::span<const void* const>(inputs).subspan(first_input, num_inputs),
                       std::span<void* const>(outputs).subspan(first_output, num_outputs)});
    first_input += num_inputs;
    first_output += num_outputs;
  }
}

/// After a failure: whoever may still write, writes into memory that is not ours any more.
void SharedDirectReduce::State::withdraw() const {
  if (!group.may_be_written()) return;
  std::vector<std::uint64_t> moved;
  for (const Tensor& tensor : announced) {
    MemoryPool& pool = MemoryPool::of(tensor.device());
    const std::optional<SegmentLocation> location = pool.locate(tensor.data());
    if (!location.has_value() ||
        std::find(moved.begin(), moved.end(), location->segment_id) != moved.end()) {
      continue;
    }
    pool.move_segment(tensor.data());
    if (const std::optional<SegmentLocation> fresh = pool.locate(tensor.data())) {
      moved.push_back(fresh->segment_id);
    }
  }
}

SharedDirectReduce::SharedDirectReduce(std::shared_ptr<Cluster> cluster)
    : state_(std::make_unique<State>(std::move(cluster))) {}
SharedDirectReduce::~SharedDirectReduce() = default;

void SharedDirectReduce::all_reduce(const CollectiveRequest& request,
                                    std::span<const CollectiveValue> values) {
  if (values.empty()) return;
  const detail::BatchSize batch = detail::measure_batch(request, values);
  // Equal on all workers, or their operations differ, which they will notice.
  const bool fits_inline = batch.inline_bytes <= kInlineBytes;
  if (!fits_inline && batch.num_tensors * sizeof(SharedLocation) > kSlotBytes) {
    if (values.size() == 1) throw ValueError("too many buffers for one reduction among workers");
    const std::span<const CollectiveValue> first_half = values.first(values.size() / 2);
    CollectiveRequest part = request;
    part.fingerprint = batch.fingerprint;
    all_reduce(part, first_half);
    try {
      all_reduce(part, values.subspan(first_half.size()));
    } catch (const OpError& error) {
      if (detail::measure_batch(part, first_half).in_place) throw_with_inputs_changed(error);
      throw;
    }
    return;
  }
  const GroupOperationInfo info{.kind = request.kind,
                                .reduce_op = request.op,
                                .dtype = values[0].inputs[0].dtype(),
                                .num_values = values.size(),
                                .size_bytes = batch.size_bytes,
                                .fingerprint = batch.fingerprint};
  State& state = *state_;
  state.begin();
  bool was_announced = false;
  try {
    const std::span<const CollectiveValue> prepared = state.prepare(request, values);
    if (fits_inline) {
      state.reduce_inline(request, prepared, info);
    } else {
      was_announced = true;
      state.reduce_in_place(request, prepared, info);
    }
    state.divide(request, values);
  } catch (const OpError& error) {
    state.group.give_up(error.what());  // where it has not failed itself
    state.withdraw();
    std::vector<RankInfo> culprits(error.culprits().begin(), error.culprits().end());
    const bool may_be_changed = was_announced && batch.in_place && state.group.may_be_written();
    throw_op_error(error.code(), error.what(),
                   {.operation = error.operation(),
                    .culprits = std::move(culprits),
                    .inputs_intact = !may_be_changed});
  } catch (const std::exception& error) {
    state.group.give_up(error.what());
    state.withdraw();
    throw;
  }
  state.begin();  // lets go of the tensors
}

std::vector<std::vector<RemoteTensor>> SharedDirectReduce::State::show(
    const CollectiveRequest& request, const GroupOperationInfo& info,
    std::span<const Tensor> shown) {
  begin();
  SlotWriter mine(group.slot());
  mine.put(std::uint64_t{shown.size()});
  for (const Tensor& tensor : shown) {
    mine.put(TensorHead{expose(tensor, true, false), static_cast<std::uint32_t>(tensor.dtype()),
                        static_cast<std::uint32_t>(tensor.shape().rank())});
    for (const std::int64_t dim : tensor.shape().dims()) mine.put(dim);
  }
  group.announce(info, request.sequence);
  group.await_announcements(request.deadline);
  std::vector<std::vector<RemoteTensor>> all(static_cast<std::size_t>(group.num_workers()));
  for (int rank = 0; rank < group.num_workers(); ++rank) {
    SlotReader slot(group.slot_of(rank));
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
  } catch (const std::exception& error) {
    state_->group.give_up(error.what());  // where it has not failed itself
    throw;
  }
}

void SharedDirectReduce::end_share(const CollectiveRequest& request) {
  state_->group.finish();
  state_->group.await_ends(request.deadline);
  state_->begin();
}

}  // namespace crossdevice
