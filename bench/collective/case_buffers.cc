// SPDX-License-Identifier: Apache-2.0
/// Allocates, fills and checks the buffers of one case.
#include "collective/case_buffers.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "crossdevice/device/copy.h"

namespace crossdevice::bench {

namespace {

constexpr std::size_t kGuardBytes = 64;
constexpr std::size_t kForeignAlignment = 64;
constexpr int kPoison = 0xA5;
constexpr int kGuard = 0x5A;
/// The tensors of a batch hold different stretches of the pattern.
constexpr std::size_t kShiftPerTensor = 17;

std::shared_ptr<void> allocate_foreign(std::size_t size_bytes) {
  const std::size_t rounded =
      (size_bytes + kForeignAlignment - 1) / kForeignAlignment * kForeignAlignment;
  void* const memory = std::aligned_alloc(kForeignAlignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return {memory, [](void* pointer) { std::free(pointer); }};
}

/// Where the host can read it; of a GPU's a copy.
Tensor on_host(const Tensor& tensor) {
  return tensor.device().is_host() ? tensor : copy_to_device(tensor, "CPU:0");
}

/// `size_bytes` of what `memory` holds, from `offset` on, all become `byte`.
void fill(const Tensor& memory, std::size_t offset, std::size_t size_bytes, int byte) {
  if (size_bytes == 0) return;
  std::byte* const begin = static_cast<std::byte*>(memory.data()) + offset;
  if (memory.device().is_host()) {
    std::memset(begin, byte, size_bytes);
    return;
  }
  const Tensor filled = Tensor::empty(DType::UINT8, Shape{size_bytes}, "CPU:0");
  std::memset(filled.data(), byte, size_bytes);
  copy(Tensor::view(static_cast<void*>(begin), DType::UINT8, Shape{size_bytes}, memory.device()),
       filled);
}

std::byte* bytes_of(const Tensor& tensor) { return static_cast<std::byte*>(tensor.data()); }

std::vector<Tensor> views(const auto& blocks) {
  std::vector<Tensor> tensors;
  for (const auto& block : blocks) tensors.push_back(block.view);
  return tensors;
}

}  // namespace

std::size_t Case::num_input_elements() const {
  std::size_t count = 0;
  for (const Shape& shape : shapes) count += static_cast<std::size_t>(shape.num_elements());
  return count;
}

std::size_t Case::size_bytes() const {
  const std::size_t parts = collective == Collective::GATHER ? devices.size() : 1;
  return parts * num_input_elements() * size_in_bytes(dtype);
}

std::size_t Case::output_bytes() const {
  return size_bytes() / size_in_bytes(dtype) * size_in_bytes(output_dtype());
}

bool Case::can_run_in_place() const {
  return collective != Collective::GATHER && output_dtype() == dtype;
}

std::size_t Case::memory_bytes() const {
  const std::size_t num_outputs =
      collective == Collective::REDUCE || collective == Collective::GATHER ? 1 : devices.size();
  const std::size_t input_bytes = devices.size() * num_input_elements() * size_in_bytes(dtype);
  return input_bytes + std::max(input_bytes, num_outputs * output_bytes());
}

CaseBuffers::CaseBuffers(const Case& test_case, OwnerThreads& owners)
    : case_(test_case), owners_(owners) {
  const std::size_t n = case_.devices.size();
  for (const Shape& shape : case_.shapes) {
    std::vector<Block>& inputs = input_blocks_.emplace_back();
    for (std::size_t r = 0; r < n; ++r) inputs.push_back(allocate(case_.dtype, shape, r));
    inputs_.emplace_back(views(inputs));

    std::vector<Block>& outputs = output_blocks_.emplace_back();
    switch (case_.collective) {
      case Collective::ALL_REDUCE:
      case Collective::BATCH_REDUCE:
      case Collective::BROADCAST:
        for (std::size_t r = 0; r < n; ++r)
          outputs.push_back(allocate(case_.output_dtype(), shape, r));
        in_place_outputs_.push_back(inputs_.back());
        break;
      case Collective::REDUCE:
        outputs.push_back(allocate(case_.output_dtype(), shape, case_.root));
        in_place_outputs_.emplace_back(inputs[case_.root].view);
        break;
      case Collective::GATHER:
        outputs.push_back(allocate(
            case_.dtype, Shape{static_cast<std::size_t>(shape.num_elements()) * n}, case_.root));
        break;
    }
    outputs_.emplace_back(views(outputs));
  }
}

CaseBuffers::Block CaseBuffers::allocate(DType dtype, const Shape& shape, std::size_t owner) {
  const std::size_t size_bytes =
      static_cast<std::size_t>(shape.num_elements()) * size_in_bytes(dtype);
  const Device& device = case_.devices[owner];
  const Shape with_guard{size_bytes + kGuardBytes};
  std::shared_ptr<void> foreign;
  if (case_.memory == MemoryKind::FOREIGN) foreign = allocate_foreign(size_bytes + kGuardBytes);
  Tensor memory = foreign ? Tensor::view(foreign.get(), DType::UINT8, with_guard, device)
                          : Tensor::empty(DType::UINT8, with_guard, device);
  Tensor view = Tensor::view(memory.data(), dtype, shape, device);
  return {.foreign = std::move(foreign),
          .memory = std::move(memory),
          .view = std::move(view),
          .owner = owner};
}

PatternPlace CaseBuffers::place(std::size_t tensor, std::size_t replica) const {
  return {.dtype = case_.dtype,
          .op = case_.op,
          .num_replicas = case_.num_replicas(),
          .replica = case_.worker * case_.devices.size() + replica,
          .first_index = tensor * kShiftPerTensor};
}

void CaseBuffers::rewrite_inputs() {
  owners_.for_each_owner([this](std::size_t owner) {
    for (std::size_t t = 0; t < input_blocks_.size(); ++t) rewrite_input(t, owner);
  });
}

void CaseBuffers::rewrite_input(std::size_t tensor, std::size_t owner) {
  Block& block = input_blocks_[tensor][owner];
  const Tensor& view = block.view;
  if (view.device().is_host()) {
    write_inputs(place(tensor, owner), view.data(), view.num_elements());
    return;
  }
  if (!block.kept) {
    const Tensor made = Tensor::empty(view.dtype(), view.shape(), "CPU:0");
    write_inputs(place(tensor, owner), made.data(), made.num_elements());
    block.kept = copy_to_device(made, view.device());
  }
  copy(view, block.kept);
}

void CaseBuffers::poison_outputs(Placement placement) {
  owners_.for_each_owner([&](std::size_t owner) {
    for (const auto* const blocks : {&input_blocks_, &output_blocks_}) {
      for (const std::vector<Block>& row : *blocks) {
        for (const Block& block : row) {
          if (block.owner != owner) continue;
          fill(block.memory, block.view.size_bytes(), kGuardBytes, kGuard);
          if (placement == Placement::OUT_OF_PLACE && blocks == &output_blocks_) {
            fill(block.memory, 0, block.view.size_bytes(), kPoison);
          }
        }
      }
    }
  });
}

std::size_t CaseBuffers::count_wrong_output(std::size_t tensor, const Tensor& result) const {
  const Tensor output = on_host(result);
  switch (case_.collective) {
    case Collective::ALL_REDUCE:
    case Collective::BATCH_REDUCE:
    case Collective::REDUCE:
      return count_different_from_reduction(place(tensor, 0), output.data(), output.num_elements());
    case Collective::BROADCAST:
      return count_different_from_input(place(tensor, case_.root), output.data(),
                                        output.num_elements());
    case Collective::GATHER:
      break;
  }
  const std::size_t n = case_.devices.size();
  const std::size_t count = output.num_elements() / n;
  std::size_t wrong = 0;
  for (std::size_t r = 0; r < n; ++r) {
    wrong += count_different_from_input(
        place(tensor, r), bytes_of(output) + r * count * size_in_bytes(case_.dtype), count);
  }
  return wrong;
}

std::size_t CaseBuffers::count_wrong(Placement placement) {
  std::vector<std::size_t> wrong(case_.devices.size(), 0);
  owners_.for_each_owner([&](std::size_t owner) {
    for (std::size_t t = 0; t < inputs_.size(); ++t) {
      for (const Tensor& output : outputs(placement)[t].values()) {
        if (output.device() == case_.devices[owner]) wrong[owner] += count_wrong_output(t, output);
      }
      if (placement == Placement::OUT_OF_PLACE) {
        const Tensor input = on_host(input_blocks_[t][owner].view);
        wrong[owner] +=
            count_different_from_input(place(t, owner), input.data(), input.num_elements());
      }
      for (const auto* const blocks : {&input_blocks_, &output_blocks_}) {
        for (const Block& block : (*blocks)[t]) {
          if (block.owner != owner) continue;
          const Tensor memory = on_host(block.memory);
          const std::byte* const guard = bytes_of(memory) + block.view.size_bytes();
          const bool whole = std::all_of(guard, guard + kGuardBytes,
                                         [](std::byte byte) { return byte == std::byte{kGuard}; });
          wrong[owner] += whole ? 0 : 1;
        }
      }
    }
  });
  std::size_t sum = 0;
  for (const std::size_t count : wrong) sum += count;
  return sum;
}

}  // namespace crossdevice::bench
