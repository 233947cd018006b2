// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/shared_batch.h"

#include <cstring>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/host_thread_pool.h"
#include "crossdevice/device/memory_pool.h"

#include "collective/detail/shared_location.h"

namespace crossdevice::detail {
namespace {

/// Of staged buffers. Measured with 2 workers: 1 to 4 MiB are equally fast on a quiet machine; the fewer meetings, the less a busy one delays them.
constexpr std::size_t kWindowBytes = std::size_t{4} << 20;
/// A copy's share of a window for one thread.
constexpr std::size_t kCopyBytes = std::size_t{64} << 10;

}  // namespace

SharedBatch::SharedBatch(SharedMemoryGroup& group, bool is_single_threaded)
    : group_(group),
      is_single_threaded_(is_single_threaded),
      buffers_(static_cast<std::size_t>(group.num_workers())),
      staging_(buffers_.size()),
      places_(buffers_.size()) {}

std::size_t SharedBatch::slot_bytes(std::size_t num_buffers) {
  return sizeof(BatchHead) + num_buffers * sizeof(BufferHead);
}

/// Results are staged where inputs were: half the bytes in the caches, and lines that another worker has written are cheaper to write again than
/// ones that it has only read (10 times; measured with 64 KiB).
void SharedBatch::reuse_staged_inputs(const CollectiveValue& value, std::span<Buffer> buffers) {
  const std::span<const Buffer> inputs = buffers.first(value.inputs.size());
  const std::span<Buffer> outputs = buffers.subspan(inputs.size());
  if (outputs.empty() || value.outputs[0].dtype() != value.inputs[0].dtype()) return;
  std::size_t next = 0;
  for (Buffer& output : outputs) {
    while (next < inputs.size() && inputs[next].head.is_staged == 0) ++next;
    if (next == inputs.size()) return;
    if (output.head.is_staged != 0) output.head.same_as = static_cast<std::uint32_t>(next++);
  }
}

SharedBatch::Buffer SharedBatch::describe(const Tensor& tensor) {
  Buffer buffer;
  if (tensor.size_bytes() == 0) return buffer;
  buffer.begin = static_cast<std::byte*>(tensor.data());
  if (const std::optional<SharedLocation> location = locate(tensor)) {
    announced_.push_back(tensor);
    buffer.head.location = *location;
  } else {
    buffer.head.is_staged = 1;
  }
  return buffer;
}

void SharedBatch::announce(const CollectiveRequest& request,
                           std::span<const CollectiveValue> values,
                           const GroupOperationInfo& info) {
  std::vector<Buffer>& own = buffers_[own_rank()];
  own.clear();
  first_buffers_.clear();
  num_emptied_ = 0;
  num_moves_ = MemoryPool::num_moves();
  BatchHead head;
  for (const CollectiveValue& value : values) {
    first_buffers_.push_back(own.size());
    for (const Tensor& input : value.inputs) own.push_back(describe(input));
    for (const Tensor& output : value.outputs) own.push_back(describe(output));
    reuse_staged_inputs(value, std::span(own).last(value.inputs.size() + value.outputs.size()));
  }
  for (const Buffer& buffer : own) head.stages |= buffer.head.is_staged;
  if (head.stages != 0) {
    windows_.rebuild(request.op, values, kWindowBytes, buffers_.size());
    const std::size_t size_bytes = windows_.max_staged_bytes();
    if (!own_staging_.has_value() || own_staging_->size_bytes() < size_bytes) {
      own_staging_.reset();  // gives back before it takes
      own_staging_ = Tensor::empty(DType::UINT8, {size_bytes}, "CPU:0");
    }
    head.staging = require_location(*own_staging_);
    announced_.push_back(*own_staging_);
    staging_[own_rank()] = static_cast<std::byte*>(own_staging_->data());
    fill(request, values, 0);
  }
  SlotWriter mine(group_.slot());
  mine.put(head);
  for (const Buffer& buffer : own) mine.put(buffer.head);
  require_unmoved(request);
  group_.announce(info, request.sequence);
}

void SharedBatch::require_unmoved(const CollectiveRequest& request) const {
  if (MemoryPool::num_moves() == num_moves_) return;
  for (const Tensor& tensor : announced_) {
    if (locate(tensor).has_value()) continue;  // it was another segment
    throw AbortedError(
        fmt::format("{} #{}: another operation of this process has failed, and memory of this one "
                    "was moved out of the other workers' reach with that of the other",
                    request.kind, request.sequence));
  }
}

void SharedBatch::learn(const CollectiveRequest& request, std::span<const CollectiveValue> values) {
  slots_.clear();
  heads_.clear();
  any_stages_ = false;
  for (std::size_t rank = 0; rank < buffers_.size(); ++rank) {
    slots_.emplace_back(group_.slot_of(static_cast<int>(rank)));
    heads_.push_back(slots_.back().get<BatchHead>());
    any_stages_ |= heads_.back().stages != 0;
  }
  if (heads_[own_rank()].stages == 0) {
    windows_.rebuild(request.op, values, any_stages_ ? kWindowBytes : WindowPlan::kWhole,
                     any_stages_ ? buffers_.size() : 1);
  }
  for (std::size_t rank = 0; rank < buffers_.size(); ++rank) {
    if (rank != own_rank()) learn_buffers_of(rank, request, values);
  }
}

std::size_t SharedBatch::window_bytes(std::span<const CollectiveValue> values,
                                      std::size_t window) const {
  std::size_t sum = 0;
  for (const WindowSlice& slice : windows_.window(window)) {
    sum += slice.count * size_in_bytes(values[slice.value].inputs[0].dtype());
  }
  return sum;
}

void SharedBatch::learn_buffers_of(std::size_t rank, const CollectiveRequest& request,
                                   std::span<const CollectiveValue> values) {
  const auto of_rank = static_cast<int>(rank);
  std::vector<Buffer>& theirs = buffers_[rank];
  theirs.clear();
  const auto learn = [&](std::size_t size_bytes, std::size_t num_inputs) {
    Buffer& buffer = theirs.emplace_back(Buffer{nullptr, slots_[rank].get<BufferHead>()});
    const std::uint32_t same_as = buffer.head.same_as;
    if (same_as != BufferHead::kNone && same_as >= num_inputs) {
      throw InternalError("a worker announced an output that is staged where no input is");
    }
    if (buffer.head.is_staged != 0 || size_bytes == 0) return;
    buffer.begin = group_.map(of_rank, buffer.head.location, size_bytes);
  };
  for (const CollectiveValue& value : values) {
    const Tensor& first = value.inputs[0];
    const std::size_t output_bytes =
        first.num_elements() * size_in_bytes(result_dtype(request.op, first.dtype()));
    for (std::size_t i = 0; i < value.inputs.size(); ++i) learn(first.size_bytes(), 0);
    for (std::size_t i = 0; i < value.outputs.size(); ++i) {
      learn(output_bytes, value.inputs.size());
    }
  }
  if (heads_[rank].stages == 0) return;
  staging_[rank] = group_.map(of_rank, heads_[rank].staging, windows_.max_staged_bytes());
}

/// Where the slices of a window lie, for each its inputs, then its outputs. Another worker's own part of what it stages lies where nobody else can
/// see: nowhere.
void SharedBatch::place(std::size_t of_rank, const CollectiveRequest& request,
                        std::span<const CollectiveValue> values, std::size_t window) {
  std::vector<std::byte*>& list = places_[of_rank];
  list.clear();
  std::byte* next = staging_[of_rank];
  const auto stage = [&](std::size_t size_bytes) {
    list.push_back(next);
    next += WindowPlan::aligned(size_bytes);
  };
  for (const WindowSlice& slice : windows_.window(window)) {
    const CollectiveValue& value = values[slice.value];
    const DType dtype = value.inputs[0].dtype();
    const std::size_t input_size = size_in_bytes(dtype);
    const std::size_t output_size = size_in_bytes(result_dtype(request.op, dtype));
    const std::size_t first_place = list.size();
    const Buffer* buffer = &buffers_[of_rank][first_buffers_[slice.value]];
    const auto at = [&](std::size_t element_size) {
      return buffer->begin == nullptr ? nullptr : buffer->begin + slice.begin * element_size;
    };
    for (std::size_t i = 0; i < value.inputs.size(); ++i, ++buffer) {
      if (is_staged(*buffer, slice, of_rank)) {
        stage(slice.count * input_size);
      } else {
        list.push_back(at(input_size));
      }
    }
    for (std::size_t i = 0; i < value.outputs.size(); ++i, ++buffer) {
      if (!is_staged(*buffer, slice, of_rank)) {
        list.push_back(at(output_size));
      } else if (buffer->head.same_as != BufferHead::kNone) {
        list.push_back(list[first_place + buffer->head.same_as]);
      } else {
        stage(slice.count * output_size);
      }
    }
  }
}

void SharedBatch::fill(const CollectiveRequest& request, std::span<const CollectiveValue> values,
                       std::size_t window) {
  place(own_rank(), request, values, window);
  copies_.clear();
  std::size_t at = 0;
  for (const WindowSlice& slice : windows_.window(window)) {
    const CollectiveValue& value = values[slice.value];
    const Buffer* buffer = &buffers_[own_rank()][first_buffers_[slice.value]];
    for (const Tensor& input : value.inputs) {
      std::byte* const staged = places_[own_rank()][at++];
      if (!is_staged(*buffer++, slice, own_rank())) continue;
      const std::size_t size = size_in_bytes(input.dtype());
      copies_.push_back({staged, static_cast<const std::byte*>(input.data()) + slice.begin * size,
                         slice.count * size});
    }
    at += value.outputs.size();
  }
  run_copies();
}

void SharedBatch::empty(std::span<const CollectiveValue> values, std::size_t window) {
  copies_.clear();
  std::size_t at = 0;
  for (const WindowSlice& slice : windows_.window(window)) {
    const CollectiveValue& value = values[slice.value];
    const Buffer* buffer = &buffers_[own_rank()][first_buffers_[slice.value] + value.inputs.size()];
    at += value.inputs.size();
    for (const Tensor& output : value.outputs) {
      const std::byte* const staged = places_[own_rank()][at++];
      if (!is_staged(*buffer++, slice, own_rank())) continue;
      const std::size_t size = size_in_bytes(output.dtype());
      copies_.push_back({static_cast<std::byte*>(output.data()) + slice.begin * size, staged,
                         slice.count * size});
    }
  }
  run_copies();
  ++num_emptied_;
}

void SharedBatch::run_copies() {
  const auto run = [](const Copy& each) {
    if (each.size_bytes > 0) std::memcpy(each.to, each.from, each.size_bytes);
  };
  if (is_single_threaded_ || copies_.empty()) {
    for (const Copy& each : copies_) run(each);
    return;
  }
  for (std::size_t i = 0; i < copies_.size(); ++i) {  // grows
    const Copy whole = copies_[i];
    if (whole.size_bytes <= kCopyBytes) continue;
    copies_[i].size_bytes = kCopyBytes;
    copies_.push_back(
        {whole.to + kCopyBytes, whole.from + kCopyBytes, whole.size_bytes - kCopyBytes});
  }
  HostThreadPool::instance().run(copies_.size(), [&](std::size_t i) { run(copies_[i]); });
}

SharedBatch::WindowTensors SharedBatch::tensors(const CollectiveRequest& request,
                                                std::span<const CollectiveValue> values,
                                                std::size_t window, std::size_t num_first_values) {
  const std::size_t num_ranks = buffers_.size();
  for (std::size_t rank = 0; rank < num_ranks; ++rank) place(rank, request, values, window);
  inputs_.clear();
  outputs_.clear();
  tensors_.clear();
  const auto is_reduced_here = [this](const WindowSlice& slice) {
    return !any_stages_ || slice.owner == own_rank();
  };
  std::size_t at = 0;
  std::size_t num_first = 0;
  const std::span<const WindowSlice> slices = windows_.window(window);
  for (const WindowSlice& slice : slices) {
    const CollectiveValue& value = values[slice.value];
    const std::size_t first_place = at;
    at += value.inputs.size() + value.outputs.size();
    if (!is_reduced_here(slice)) continue;
    for (const std::vector<std::byte*>& list : places_) {
      const auto begin = list.begin() + static_cast<std::ptrdiff_t>(first_place);
      const auto middle = begin + static_cast<std::ptrdiff_t>(value.inputs.size());
      const auto end = middle + static_cast<std::ptrdiff_t>(value.outputs.size());
      inputs_.insert(inputs_.end(), begin, middle);
      outputs_.insert(outputs_.end(), middle, end);
    }
    if (slice.value < num_first_values) ++num_first;
  }
  // Spans only now, that the vectors grow no more.
  std::size_t first_input = 0;
  std::size_t first_output = 0;
  for (const WindowSlice& slice : slices) {
    if (!is_reduced_here(slice)) continue;
    const CollectiveValue& value = values[slice.value];
    const std::size_t num_inputs = value.inputs.size() * num_ranks;
    const std::size_t num_outputs = value.outputs.size() * num_ranks;
    tensors_.push_back({value.inputs[0].dtype(), slice.count,
                        std::span<const void* const>(inputs_).subspan(first_input, num_inputs),
                        std::span<void* const>(outputs_).subspan(first_output, num_outputs)});
    first_input += num_inputs;
    first_output += num_outputs;
  }
  DirectReduceShare share{.is_single_threaded = is_single_threaded_};
  if (!any_stages_) {
    share.index = own_rank();
    share.count = num_ranks;
  }
  return {tensors_, num_first, share};
}

}  // namespace crossdevice::detail
