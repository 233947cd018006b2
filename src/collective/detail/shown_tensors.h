// SPDX-License-Identifier: Apache-2.0
/// The tensors of a worker as one block of bytes: a description, then their elements, each aligned to 64 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "crossdevice/collective/collective_request.h"
#include "crossdevice/collective/split.h"
#include "crossdevice/device/tensor.h"

namespace crossdevice::detail {

/// What the others need to know first.
struct ShownSize {
  std::uint64_t description_bytes = 0;
  std::uint64_t total_bytes = 0;
};

/// Numbers of 64 bits: how many tensors, and of each its dtype, its rank and its dimensions.
[[nodiscard]] std::vector<std::uint64_t> describe(std::span<const Tensor> tensors);
[[nodiscard]] ShownSize shown_size(std::span<const std::uint64_t> description,
                                   std::span<const Tensor> tensors);
void write_shown(std::span<const std::uint64_t> description, std::span<const Tensor> tensors,
                 std::byte* block);

/// Where each rank's block lies in a row of all of them. The sizes may be anything.
///
/// Errors   InternalError: more bytes than memory can have; names the rank by which.
[[nodiscard]] std::vector<Interval> place_shown(std::span<const ShownSize> sizes);

/// What `rank` has shown. The block may hold anything.
///
/// Errors   InternalError: it cannot be read.
[[nodiscard]] std::vector<RemoteTensor> read_shown(std::span<const std::byte> block,
                                                   const ShownSize& size, int rank);

}  // namespace crossdevice::detail
