// SPDX-License-Identifier: Apache-2.0
#include "chaos/values.h"

#include <algorithm>
#include <complex>
#include <cstring>

#include "support/reference.h"

namespace crossdevice::chaos {
namespace {

constexpr std::size_t kBlockElements = 61;
constexpr std::size_t kNumBlocks = 16;
constexpr std::size_t kTileElements = kBlockElements * kNumBlocks;
constexpr std::byte kPoison{0xA5};

std::uint64_t mixed(std::uint64_t x) {
  x ^= x >> 33U;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33U;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33U);
}

/// Which one comes `index`-th in a tensor.
std::size_t block_at(std::size_t index) { return mixed(index + 1) % kNumBlocks; }

/// Calls `use(offset, count, from)` for each piece of `size` bytes that lies in one block: where it is, and where in the tile.
template <class Use>
bool for_each_piece(std::size_t size, std::size_t element_bytes, std::size_t first,
                    const Use& use) {
  const std::size_t block_bytes = kBlockElements * element_bytes;
  std::size_t at = first * element_bytes;  // in the row
  for (std::size_t done = 0; done < size;) {
    const std::size_t inside = at % block_bytes;
    const std::size_t count = std::min(size - done, block_bytes - inside);
    if (!use(done, count, block_at(at / block_bytes) * block_bytes + inside)) return false;
    done += count;
    at += count;
  }
  return true;
}

/// 0 or 1, of a product 1 or 2. With 8 workers of 2 devices no sum is more than 16, and none of the smallest floats, which hold all integers up to 8, and no
/// product's exponent more than 8.
int element(ReduceOp op, DType dtype, const Origin& origin, std::size_t i) {
  const std::uint64_t bits =
      mixed(mixed(mixed(origin.salt + 1) + origin.value) +
            ((static_cast<std::uint64_t>(origin.rank) << 40U) | (origin.device << 20U) | i));
  const int bit = static_cast<int>(bits & 1U);
  const bool is_small = dtype == DType::FLOAT8_E4M3 || dtype == DType::FLOAT8_E5M2;
  const bool may_count = origin.device == 0 || (op != ReduceOp::PROD && !is_small);
  return (op == ReduceOp::PROD ? 1 : 0) + (may_count ? bit : 0);
}

template <class T>
void put(std::byte* to, int value) {
  T element{};
  if constexpr (std::is_same_v<T, bool>) {
    element = value == 1;
  } else if constexpr (std::is_integral_v<T>) {
    element = static_cast<T>(value);
  } else {
    element = T(static_cast<float>(value));
  }
  std::memcpy(to, &element, sizeof element);
}

void put(DType dtype, std::byte* to, int value) {
  switch (dtype) {
    case DType::BOOL:
      return put<bool>(to, value);
    case DType::INT8:
      return put<std::int8_t>(to, value);
    case DType::INT16:
      return put<std::int16_t>(to, value);
    case DType::INT32:
      return put<std::int32_t>(to, value);
    case DType::INT64:
      return put<std::int64_t>(to, value);
    case DType::UINT8:
      return put<std::uint8_t>(to, value);
    case DType::UINT16:
      return put<std::uint16_t>(to, value);
    case DType::UINT32:
      return put<std::uint32_t>(to, value);
    case DType::UINT64:
      return put<std::uint64_t>(to, value);
    case DType::FLOAT8_E4M3:
      return put<float8_e4m3>(to, value);
    case DType::FLOAT8_E5M2:
      return put<float8_e5m2>(to, value);
    case DType::FLOAT16:
      return put<float16>(to, value);
    case DType::BFLOAT16:
      return put<bfloat16>(to, value);
    case DType::FLOAT32:
      return put<float>(to, value);
    case DType::FLOAT64:
      return put<double>(to, value);
    case DType::COMPLEX64:
      return put<std::complex<float>>(to, value);
    case DType::COMPLEX128:
      return put<std::complex<double>>(to, value);
  }
}

}  // namespace

Tile input_tile(ReduceOp op, DType dtype, const Origin& origin) {
  const std::size_t size = size_in_bytes(dtype);
  Tile tile(kTileElements * size);
  for (std::size_t i = 0; i < kTileElements; ++i) {
    put(dtype, tile.data() + i * size, element(op, dtype, origin, i));
  }
  return tile;
}

Tile reduced_tile(ReduceOp op, DType dtype, std::uint64_t salt, std::size_t value, int num_workers,
                  std::size_t num_devices) {
  std::vector<Tile> tiles;
  tiles.reserve(static_cast<std::size_t>(num_workers) * num_devices);
  for (int rank = 0; rank < num_workers; ++rank) {
    for (std::size_t device = 0; device < num_devices; ++device) {
      tiles.push_back(input_tile(op, dtype, {salt, value, rank, device}));
    }
  }
  std::vector<const void*> inputs;
  inputs.reserve(tiles.size());
  for (const Tile& tile : tiles) inputs.push_back(tile.data());
  return testing::reference_reduce(op, dtype, inputs, kTileElements);
}

void fill(std::span<std::byte> bytes, std::size_t element_bytes, const Tile& tile,
          std::size_t first) {
  (void)for_each_piece(bytes.size(), element_bytes, first,
                       [&](std::size_t offset, std::size_t count, std::size_t from) {
                         std::memcpy(bytes.data() + offset, tile.data() + from, count);
                         return true;
                       });
}

void poison(std::span<std::byte> bytes) { std::fill(bytes.begin(), bytes.end(), kPoison); }

bool is_poison(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte each) { return each == kPoison; });
}

bool matches(std::span<const std::byte> bytes, std::size_t element_bytes, const Tile& tile,
             std::size_t first) {
  return for_each_piece(bytes.size(), element_bytes, first,
                        [&](std::size_t offset, std::size_t count, std::size_t from) {
                          return std::memcmp(bytes.data() + offset, tile.data() + from, count) == 0;
                        });
}

std::span<std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data()), tensor.size_bytes()};
}

}  // namespace crossdevice::chaos
