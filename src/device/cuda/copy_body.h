// SPDX-License-Identifier: Apache-2.0
/// What one thread of a kernel that copies many ranges does: bit by bit, or converted and divided.
///
/// Layout   a range is cut into tiles of what a block's threads do in one go (ranges.h): 16 KiB of bytes, or 256 x 4 vectors of a conversion. One huge
///          tensor and a thousand tiny ones keep all multiprocessors equally busy. Tiles start where the destination is at a 16-byte boundary; what lies
///          before the first boundary and behind the last vector is done by the range's first tile.
/// In place (a range divided where it lies) a thread reads elements before it writes the same, and no other thread touches these.
/// Roofline 2 S bytes at the copy bandwidth of the memory, (from + to) / 2 of that for a conversion. Each thread has 4 vectors in flight: at 1024
///          resident threads 64 KB for each multiprocessor, where an H200 needs 23 KB. A division takes some ten instructions for each element, of
///          which there is time for fifty (float32).
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda/element_formats.h"
#include "device/cuda/memory_access.h"
#include "device/cuda/ranges.h"

namespace crossdevice::cuda {

// Products of a few hundred threads and a few elements are 32 bits wide on purpose: one register instead of two.
// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)

/// The kernel's argument, by value: a launch needs no other memory, so it can be captured. Pointers and sizes are in arrays of their own, without gaps.
template <std::uint32_t kSize>
struct CopyArguments {
  static constexpr std::uint32_t kCapacity = kSize;
  const void* sources[kSize];
  void* destinations[kSize];
  std::uint64_t num_elements[kSize];
  std::uint32_t first_tiles[kSize];  ///< tiles of the ranges before
  std::uint32_t num_ranges;
  std::uint32_t num_tiles;
  Divider divider;
};

using ManyRanges = CopyArguments<1000>;
using FewRanges = CopyArguments<128>;
static_assert(sizeof(ManyRanges) <= kMaxArgumentBytes &&
              sizeof(FewRanges) <= kMaxArgumentBytesBefore);

inline constexpr std::uint32_t kCopyUnroll = 4;

/// kCopyUnroll vectors of a thread, from an address that is a multiple of kPiece to one that is a multiple of 16. `offset` is that of the first; those
/// that do not end by `size` are not touched.
template <std::size_t kPiece>
CROSSDEVICE_BOTH void copy_vectors(std::byte* to, const std::byte* from, std::uint64_t offset,
                                   std::uint64_t size) {
  constexpr std::size_t kStride = kBlockThreads * kVectorBytes;
  // A vector that arrives in small pieces takes a register for each: one such at a time.
  constexpr std::uint32_t kInFlight = kPiece >= 4 ? kCopyUnroll : 1;
  for (std::uint32_t first = 0; first < kCopyUnroll; first += kInFlight) {
    Vector vectors[kInFlight];
    CROSSDEVICE_UNROLL
    for (std::uint32_t u = 0; u < kInFlight; ++u) {
      const std::uint64_t at = offset + (first + u) * kStride;
      if (at + kVectorBytes <= size)
        load_pieces<kPiece, kVectorBytes / kPiece>(&vectors[u], from + at);
    }
    CROSSDEVICE_UNROLL
    for (std::uint32_t u = 0; u < kInFlight; ++u) {
      const std::uint64_t at = offset + (first + u) * kStride;
      if (at + kVectorBytes <= size) store_vector(to + at, vectors[u]);
    }
  }
}

/// Bytes; what they mean does not matter.
struct CopyBytes {
  static constexpr bool kCopiesBits = true;
  static constexpr std::uint32_t kTile = kBlockThreads * kCopyUnroll * kVectorBytes;

  CROSSDEVICE_BOTH static void run(const void* source, void* destination, std::uint64_t size,
                                   std::uint32_t tile, std::uint32_t thread,
                                   const Divider& /*divider*/) {
    const std::uint64_t to_boundary = elements_to_alignment(destination, 1, kVectorBytes);
    const std::uint64_t head = to_boundary < size ? to_boundary : size;
    const std::uint64_t body = size - head;
    std::byte* const to = advance(destination, head);
    const std::byte* const from = advance(source, head);
    const std::uint64_t offset = static_cast<std::uint64_t>(tile) * kTile + thread * kVectorBytes;
    // Wide stores always; loads as wide as the source allows.
    const std::uintptr_t low_bits = reinterpret_cast<std::uintptr_t>(from) % kVectorBytes;
    if (low_bits == 0) {
      copy_vectors<16>(to, from, offset, body);
    } else if (low_bits % 8 == 0) {
      copy_vectors<8>(to, from, offset, body);
    } else if (low_bits % 4 == 0) {
      copy_vectors<4>(to, from, offset, body);
    } else if (low_bits % 2 == 0) {
      copy_vectors<2>(to, from, offset, body);
    } else {
      copy_vectors<1>(to, from, offset, body);
    }
    const std::uint64_t rest = head + body % kVectorBytes;  // below 32
    if (tile != 0 || thread >= rest) return;
    const std::uint64_t i = thread < head ? thread : size - rest + thread;
    store_piece<1>(advance(destination, i), advance(source, i));
  }
};

/// Elements of one floating format as those of another, or of the same, divided on the way: in the source's compute type, then rounded once. Complex
/// numbers are two elements each.
template <class Source, class Destination>
struct Convert {
  using From = typename Source::Storage;
  using To = typename Destination::Storage;
  static constexpr bool kCopiesBits = false;
  /// Elements at once: as many as make 16 bytes of the larger type.
  static constexpr std::uint32_t kWidth =
      kVectorBytes / (sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To));
  static constexpr std::uint32_t kTile = kBlockThreads * kCopyUnroll * kWidth;

  CROSSDEVICE_BOTH static To convert(From element, const Divider& divider) {
    return Destination::narrow(divide(Source::widen(element), divider));
  }

  CROSSDEVICE_BOTH static void convert_element(const void* source, void* destination,
                                               std::uint64_t i, const Divider& divider) {
    const From element = load_element<From>(advance(source, i * sizeof(From)));
    store_element(advance(destination, i * sizeof(To)), convert(element, divider));
  }

  CROSSDEVICE_BOTH static void convert_vectors(const std::byte* from, std::byte* to,
                                               std::uint64_t first, std::uint64_t count,
                                               const Divider& divider) {
    From loaded[kCopyUnroll][kWidth];
    CROSSDEVICE_UNROLL
    for (std::uint32_t u = 0; u < kCopyUnroll; ++u) {
      const std::uint64_t i = first + u * kBlockThreads * kWidth;
      if (i + kWidth <= count) load_piece<sizeof(loaded[u])>(loaded[u], from + i * sizeof(From));
    }
    CROSSDEVICE_UNROLL
    for (std::uint32_t u = 0; u < kCopyUnroll; ++u) {
      const std::uint64_t i = first + u * kBlockThreads * kWidth;
      if (i + kWidth > count) continue;
      To results[kWidth];
      CROSSDEVICE_UNROLL
      for (std::uint32_t e = 0; e < kWidth; ++e) results[e] = convert(loaded[u][e], divider);
      store_piece<sizeof(results)>(to + i * sizeof(To), results);
    }
  }

  CROSSDEVICE_BOTH static void run(const void* source, void* destination, std::uint64_t count,
                                   std::uint32_t tile, std::uint32_t thread,
                                   const Divider& divider) {
    const std::uint64_t head = elements_to_alignment(destination, sizeof(To), kWidth * sizeof(To));
    const std::uintptr_t from_there =
        reinterpret_cast<std::uintptr_t>(source) + head * sizeof(From);
    const std::uint64_t tile_begin = static_cast<std::uint64_t>(tile) * kTile;
    if (from_there % (kWidth * sizeof(From)) != 0 || head >= count) {
      for (std::uint32_t step = 0; step < kTile; step += kBlockThreads) {
        const std::uint64_t i = tile_begin + step + thread;
        if (i < count) convert_element(source, destination, i, divider);
      }
      return;
    }
    const std::uint64_t body = count - head;
    convert_vectors(advance(source, head * sizeof(From)), advance(destination, head * sizeof(To)),
                    tile_begin + thread * kWidth, body, divider);
    const std::uint64_t rest = head + body % kWidth;  // below 2 kWidth
    if (tile != 0 || thread >= rest) return;
    convert_element(source, destination, thread < head ? thread : count - rest + thread, divider);
  }
};

/// Everything that thread `thread` of block `block` of `num_blocks` does.
template <class Copier, class Arguments>
CROSSDEVICE_BOTH void copy_thread(const Arguments& arguments, std::uint32_t block,
                                  std::uint32_t num_blocks, std::uint32_t thread) {
  for (std::uint32_t tile = block; tile < arguments.num_tiles; tile += num_blocks) {
    const std::uint32_t r = find_range(arguments, tile);
    Copier::run(arguments.sources[r], arguments.destinations[r], arguments.num_elements[r],
                tile - arguments.first_tiles[r], thread, arguments.divider);
  }
}

// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)
}  // namespace crossdevice::cuda
