// SPDX-License-Identifier: Apache-2.0
#include "peers/flat_buffer.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "crossdevice/device/tensor.h"

namespace crossdevice::bench {

namespace {

/// That of the tensors' memory.
constexpr std::size_t kAlignment = 64;

}  // namespace

void FlatBuffer::reserve(std::size_t count) {
  if (count <= capacity_) return;
  const std::size_t rounded = (count * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  void* const memory = std::aligned_alloc(kAlignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  memory_ = {static_cast<float*>(memory), [](float* pointer) { std::free(pointer); }};
  capacity_ = count;
}

std::span<float> FlatBuffer::pack(std::span<const PerReplica> tensors) {
  std::size_t count = 0;
  for (const PerReplica& each : tensors) {
    count += static_cast<std::size_t>(each.values()[0].num_elements());
  }
  reserve(count);
  float* end = memory_.get();
  for (const PerReplica& each : tensors) {
    const Tensor& tensor = each.values()[0];
    std::memcpy(end, tensor.data(), tensor.size_bytes());
    end += tensor.num_elements();
  }
  return {memory_.get(), count};
}

void FlatBuffer::unpack(std::span<const PerReplica> tensors) const {
  const float* begin = memory_.get();
  for (const PerReplica& each : tensors) {
    const Tensor& tensor = each.values()[0];
    std::memcpy(tensor.data(), begin, tensor.size_bytes());
    begin += tensor.num_elements();
  }
}

}  // namespace crossdevice::bench
