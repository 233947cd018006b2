// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/shown_tensors.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {
namespace {

constexpr std::size_t kAlignment = 64;

constexpr std::size_t aligned(std::size_t size_bytes) {
  return (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::vector<std::uint64_t> describe(std::span<const Tensor> tensors) {
  std::vector<std::uint64_t> description{tensors.size()};
  for (const Tensor& tensor : tensors) {
    description.push_back(static_cast<std::uint64_t>(tensor.dtype()));
    description.push_back(tensor.shape().rank());
    for (const std::int64_t dim : tensor.shape().dims()) {
      description.push_back(static_cast<std::uint64_t>(dim));
    }
  }
  return description;
}

std::vector<Interval> place_shown(std::span<const ShownSize> sizes) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::vector<Interval> parts;
  parts.reserve(sizes.size());
  std::size_t end = 0;
  for (const ShownSize& each : sizes) {
    if (each.total_bytes > kMost - end) {
      throw InternalError(fmt::format("rank {} says that it shows {} bytes, behind {} of others",
                                      parts.size(), each.total_bytes, end));
    }
    parts.push_back({.begin = end, .count = each.total_bytes});
    end += each.total_bytes;
  }
  return parts;
}

std::vector<RemoteTensor> read_shown(std::span<const std::byte> block, const ShownSize& size,
                                     int rank) {
  const auto malformed = [rank] {
    return InternalError(fmt::format("rank {} showed tensors that cannot be read", rank));
  };
  if (size.description_bytes > block.size()) throw malformed();
  std::size_t at = 0;
  const auto next = [&]() -> std::uint64_t {
    std::uint64_t value = 0;
    if (at + sizeof value > size.description_bytes) throw malformed();
    std::memcpy(&value, block.data() + at, sizeof value);
    at += sizeof value;
    return value;
  };
  std::vector<RemoteTensor> tensors;
  std::size_t data = aligned(size.description_bytes);
  for (std::uint64_t left = next(); left > 0; --left) {
    RemoteTensor& tensor = tensors.emplace_back();
    const std::uint64_t dtype = next();
    if (dtype >= kNumDTypes) throw malformed();
    tensor.dtype = static_cast<DType>(dtype);
    std::vector<std::int64_t> dims;
    for (std::uint64_t dims_left = next(); dims_left > 0; --dims_left) {
      dims.push_back(static_cast<std::int64_t>(next()));
    }
    try {
      tensor.shape = Shape(std::span<const std::int64_t>(dims));
    } catch (const ValueError&) {
      throw malformed();
    }
    const auto num_elements = static_cast<std::size_t>(tensor.shape.num_elements());
    const std::size_t element_bytes = size_in_bytes(tensor.dtype);
    if (data > block.size() || num_elements > (block.size() - data) / element_bytes) {
      throw malformed();
    }
    const std::size_t tensor_bytes = num_elements * element_bytes;
    if (tensor_bytes > 0) tensor.data = block.data() + data;
    data += aligned(tensor_bytes);
  }
  return tensors;
}

ShownSize shown_size(std::span<const std::uint64_t> description, std::span<const Tensor> tensors) {
  ShownSize size{.description_bytes = description.size_bytes(),
                 .total_bytes = aligned(description.size_bytes())};
  for (const Tensor& tensor : tensors) size.total_bytes += aligned(tensor.size_bytes());
  return size;
}

void write_shown(std::span<const std::uint64_t> description, std::span<const Tensor> tensors,
                 std::byte* block) {
  std::memcpy(block, description.data(), description.size_bytes());
  block += aligned(description.size_bytes());
  for (const Tensor& tensor : tensors) {
    if (tensor.size_bytes() > 0) std::memcpy(block, tensor.data(), tensor.size_bytes());
    block += aligned(tensor.size_bytes());
  }
}

}  // namespace crossdevice::detail
