// SPDX-License-Identifier: Apache-2.0
/// Elements whose reductions are exact in every dtype and in every order of additions, so that results can be compared bit by bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/tensor.h"

namespace crossdevice::chaos {

/// What distinguishes one component of one value of one call from all others.
struct Origin {
  std::uint64_t salt = 0;  ///< of the call
  std::size_t value = 0;
  int rank = 0;
  std::size_t device = 0;
};

/// Blocks of a prime number of elements, all different. A tensor is a row of them in an order that never repeats, the same for all values, so that what is
/// displaced by any number of elements shows.
using Tile = std::vector<std::byte>;

[[nodiscard]] Tile input_tile(ReduceOp op, DType dtype, const Origin& origin);
/// Of all components of a value.
[[nodiscard]] Tile reduced_tile(ReduceOp op, DType dtype, std::uint64_t salt, std::size_t value,
                                int num_workers, std::size_t num_devices);

/// Element i of `bytes` becomes element `first` + i of the row.
void fill(std::span<std::byte> bytes, std::size_t element_bytes, const Tile& tile,
          std::size_t first = 0);
/// Bytes that no result has.
void poison(std::span<std::byte> bytes);
[[nodiscard]] bool is_poison(std::span<const std::byte> bytes);
[[nodiscard]] bool matches(std::span<const std::byte> bytes, std::size_t element_bytes,
                           const Tile& tile, std::size_t first = 0);
[[nodiscard]] std::span<std::byte> bytes_of(const Tensor& tensor);

}  // namespace crossdevice::chaos
