// SPDX-License-Identifier: Apache-2.0
/// Which kernel serves a copy of ranges, and its argument: what is decided on the host before a launch, and by the tests before they run a kernel's body.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "crossdevice/core/dtype.h"
#include "crossdevice/device/kernel_api.h"

#include "device/cuda/copy_body.h"
#include "device/cuda/reduce_plan.h"

namespace crossdevice::cuda {

/// Tiles of one launch at most; ranges that have more are split over launches.
inline constexpr std::uint64_t kMaxTiles = (std::uint64_t{1} << 31) - 1;

/// Takes ranges from the front of `ranges` while they fit, into one launch's argument; `factor` elements make one of a range's. Ranges of nothing, and
/// bits copied to where they are, take no room.
template <class Copier, class Arguments>
void take_ranges(std::span<const detail::CopyRange>& ranges, std::uint64_t factor,
                 Arguments& arguments) {
  arguments.num_ranges = 0;
  std::uint64_t num_tiles = 0;
  std::size_t taken = 0;
  for (; taken < ranges.size() && arguments.num_ranges < Arguments::kCapacity; ++taken) {
    const detail::CopyRange& range = ranges[taken];
    const std::uint64_t count = range.num_elements * factor;
    if (count == 0 || (Copier::kCopiesBits && range.source == range.destination)) continue;
    const std::uint64_t tiles = (count + Copier::kTile - 1) / Copier::kTile;
    if (num_tiles + tiles > kMaxTiles && arguments.num_ranges > 0) break;
    const std::uint32_t r = arguments.num_ranges++;
    arguments.sources[r] = range.source;
    arguments.destinations[r] = range.destination;
    arguments.num_elements[r] = count;
    arguments.first_tiles[r] = static_cast<std::uint32_t>(num_tiles);
    num_tiles += tiles;
  }
  arguments.num_tiles = static_cast<std::uint32_t>(num_tiles);
  ranges = ranges.subspan(taken);
}

/// Launches everything: runner.template run<Copier>(arguments) for each, until one returns something else than 0, which is returned.
template <class Copier, class Runner>
int run_copies(const detail::CopyLaunch& launch, std::uint64_t factor, Runner& runner) {
  std::span<const detail::CopyRange> ranges = launch.ranges;
  const auto run_once = [&]<class Arguments>(Arguments& arguments) {
    arguments.divider = divider_by(launch.divisor);
    take_ranges<Copier>(ranges, factor, arguments);
    return arguments.num_tiles == 0 ? 0 : runner.template run<Copier>(arguments);
  };
  int result = 0;
  while (result == 0 && !ranges.empty()) {
    // A large argument takes longer to be brought to the device.
    if (ranges.size() <= FewRanges::kCapacity) {
      FewRanges few;
      result = run_once(few);
    } else {
      ManyRanges many;
      result = run_once(many);
    }
  }
  return result;
}

[[nodiscard]] constexpr bool copies_bits(const detail::CopyLaunch& launch) {
  return launch.source_dtype == launch.destination_dtype && launch.divisor == 1;
}

template <class Runner>
int run_byte_copies(const detail::CopyLaunch& launch, Runner& runner) {
  return run_copies<CopyBytes>(launch, size_in_bytes(launch.source_dtype), runner);
}

/// From one format to any.
template <class Source, class Runner>
int run_conversions_from(const detail::CopyLaunch& launch, Runner& runner) {
  const std::uint64_t factor = is_complex(launch.source_dtype) ? 2 : 1;
  switch (float_kind(launch.destination_dtype)) {
    case ElementKind::FLOAT8_E4M3:
      return run_copies<Convert<Source, Float8E4M3>>(launch, factor, runner);
    case ElementKind::FLOAT8_E5M2:
      return run_copies<Convert<Source, Float8E5M2>>(launch, factor, runner);
    case ElementKind::FLOAT16:
      return run_copies<Convert<Source, Float16>>(launch, factor, runner);
    case ElementKind::BFLOAT16:
      return run_copies<Convert<Source, BFloat16>>(launch, factor, runner);
    case ElementKind::FLOAT64:
      return run_copies<Convert<Source, Float64>>(launch, factor, runner);
    case ElementKind::FLOAT32:
    case ElementKind::BITS8:
    case ElementKind::BITS16:
    case ElementKind::BITS32:
    case ElementKind::BITS64:
      break;
  }
  return run_copies<Convert<Source, Float32>>(launch, factor, runner);
}

}  // namespace crossdevice::cuda
