// SPDX-License-Identifier: Apache-2.0
/// How a launch of many ranges is dealt out to blocks: each range is cut into tiles, the argument says how many lie before each range, and a block finds its
/// range by halving that list.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda/element_formats.h"

namespace crossdevice::cuda {

/// What kernels take as argument at most, with drivers for CUDA 12.1 and later, and before.
inline constexpr std::size_t kMaxArgumentBytes = 32764;
inline constexpr std::size_t kMaxArgumentBytesBefore = 4096;

/// The range that a tile belongs to: the last one that starts at or before it.
///
/// Arguments  num_ranges; first_tiles[r]: tiles of the ranges before.
template <class Arguments>
CROSSDEVICE_BOTH std::uint32_t find_range(const Arguments& arguments, std::uint32_t tile) {
  std::uint32_t low = 0;
  std::uint32_t high = arguments.num_ranges;
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    if (arguments.first_tiles[middle] <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace crossdevice::cuda
