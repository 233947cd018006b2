// SPDX-License-Identifier: Apache-2.0
/// Reading and writing memory as wide as its alignment allows, on a GPU and on the host; and how threads are laid over elements.
///
/// Loads are plain ones, not of the read-only path: an output may be an input. Nothing is marked as used once: a pack is read by NCCL next, from the
/// second-level cache if it fits there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/cuda/element_formats.h"

namespace crossdevice::cuda {

/// Threads of a block.
inline constexpr std::uint32_t kBlockThreads = 256;
/// What one instruction moves at most, for each thread.
inline constexpr std::size_t kVectorBytes = 16;
/// Blocks of a launch; a launch of more tiles goes over them in strides.
inline constexpr std::uint64_t kMaxBlocks = std::uint64_t{1} << 24;

/// 16 bytes in registers.
struct alignas(16) Vector {
  std::uint32_t words[4];
};

/// From an address that is a multiple of 16.
CROSSDEVICE_BOTH Vector load_vector(const void* from) {
  Vector vector;
#if defined(__CUDA_ARCH__)
  const uint4 loaded = *static_cast<const uint4*>(from);
  vector.words[0] = loaded.x;
  vector.words[1] = loaded.y;
  vector.words[2] = loaded.z;
  vector.words[3] = loaded.w;
#else
  memcpy(&vector, __builtin_assume_aligned(from, kVectorBytes), sizeof(vector));
#endif
  return vector;
}

CROSSDEVICE_BOTH void store_vector(void* to, const Vector& vector) {
#if defined(__CUDA_ARCH__)
  *static_cast<uint4*>(to) =
      make_uint4(vector.words[0], vector.words[1], vector.words[2], vector.words[3]);
#else
  memcpy(__builtin_assume_aligned(to, kVectorBytes), &vector, sizeof(vector));
#endif
}

/// `kBytes` (1, 2, 4, 8 or 16) in one piece, at an address that is a multiple of kBytes, from or to anything of that size in registers.
template <std::size_t kBytes>
struct Piece;
template <>
struct Piece<1> {
  using Word = std::uint8_t;
};
template <>
struct Piece<2> {
  using Word = std::uint16_t;
};
template <>
struct Piece<4> {
  using Word = std::uint32_t;
};
template <>
struct Piece<8> {
  using Word = std::uint64_t;
};

template <std::size_t kBytes>
CROSSDEVICE_BOTH void load_piece(void* registers, const void* from) {
  if constexpr (kBytes == kVectorBytes) {
    const Vector vector = load_vector(from);
    memcpy(registers, &vector, kBytes);
  } else {
#if defined(__CUDA_ARCH__)
    const typename Piece<kBytes>::Word word =
        *static_cast<const typename Piece<kBytes>::Word*>(from);
    memcpy(registers, &word, kBytes);
#else
    memcpy(registers, __builtin_assume_aligned(from, kBytes), kBytes);
#endif
  }
}

template <std::size_t kBytes>
CROSSDEVICE_BOTH void store_piece(void* to, const void* registers) {
  if constexpr (kBytes == kVectorBytes) {
    Vector vector;
    memcpy(&vector, registers, kBytes);
    store_vector(to, vector);
  } else {
#if defined(__CUDA_ARCH__)
    typename Piece<kBytes>::Word word;
    memcpy(&word, registers, kBytes);
    *static_cast<typename Piece<kBytes>::Word*>(to) = word;
#else
    memcpy(__builtin_assume_aligned(to, kBytes), registers, kBytes);
#endif
  }
}

/// kCount pieces, one behind the other.
template <std::size_t kBytes, std::size_t kCount>
CROSSDEVICE_BOTH void load_pieces(void* registers, const void* from) {
  for (std::size_t p = 0; p < kCount; ++p) {
    load_piece<kBytes>(static_cast<std::byte*>(registers) + p * kBytes,
                       static_cast<const std::byte*>(from) + p * kBytes);
  }
}
template <std::size_t kBytes, std::size_t kCount>
CROSSDEVICE_BOTH void store_pieces(void* to, const void* registers) {
  for (std::size_t p = 0; p < kCount; ++p) {
    store_piece<kBytes>(static_cast<std::byte*>(to) + p * kBytes,
                        static_cast<const std::byte*>(registers) + p * kBytes);
  }
}

/// sizeof(T) bytes at an address that alignof(T) allows.
template <class T>
CROSSDEVICE_BOTH T load_element(const void* from) {
  T value;
  load_pieces<alignof(T), sizeof(T) / alignof(T)>(&value, from);
  return value;
}
template <class T>
CROSSDEVICE_BOTH void store_element(void* to, const T& value) {
  store_pieces<alignof(T), sizeof(T) / alignof(T)>(to, &value);
}

/// Element `e` of those that lie in `words`.
template <class T>
CROSSDEVICE_BOTH T element_of(const std::uint32_t* words, std::uint32_t e) {
  if constexpr (sizeof(T) < 4) {
    constexpr std::uint32_t kInWord = 4 / sizeof(T);
    return static_cast<T>(words[e / kInWord] >> (8 * sizeof(T) * (e % kInWord)));
  } else {
    T value;
    memcpy(&value, words + e * (sizeof(T) / 4), sizeof(T));
    return value;
  }
}

CROSSDEVICE_BOTH const std::byte* advance(const void* pointer, std::uint64_t bytes) {
  return static_cast<const std::byte*>(pointer) + bytes;
}
CROSSDEVICE_BOTH std::byte* advance(void* pointer, std::uint64_t bytes) {
  return static_cast<std::byte*>(pointer) + bytes;
}

/// Elements of `element_bytes` to skip from `pointer` on until the address is a multiple of `alignment` (a power of two of at most 16 that element_bytes
/// divides, or the other way round); alignment itself where no element is at such an address.
CROSSDEVICE_BOTH std::uint32_t elements_to_alignment(const void* pointer, std::size_t element_bytes,
                                                     std::size_t alignment) {
  const std::size_t missing = (0 - reinterpret_cast<std::uintptr_t>(pointer)) & (alignment - 1);
  if (missing % element_bytes != 0) return static_cast<std::uint32_t>(alignment);
  return static_cast<std::uint32_t>(missing / element_bytes);
}

}  // namespace crossdevice::cuda
