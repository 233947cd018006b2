// SPDX-License-Identifier: Apache-2.0
/// Values of every dtype with what their reduction must be, for tests that compare engines with the slow reference, bit by bit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/core/small_floats.h"
#include "crossdevice/device/tensor.h"
#include "crossdevice/ops/values.h"

#include "support/reference.h"

namespace crossdevice::testing {

/// Around vectors and pack edges; 0, 1 and primes among them.
inline constexpr std::size_t kReduceSizes[] = {0, 1, 31, 64, 65, 250, 1021, 4099};
inline constexpr std::byte kPoison{0xA5};

/// What elements are drawn.
enum class Elements {
  ANY,    ///< floats of moderate size; of small types any bits, NaN and infinities too
  EXACT,  ///< of floating types of up to 16 bits -1, 0 and 1, of which no order of up to 8 additions or multiplications rounds
  WHOLE,  ///< the same of all floating types: for an order of additions that nobody knows
};

template <class T>
void fill_floats(void* data, std::size_t count, std::mt19937& random) {
  for (std::size_t i = 0; i < count; ++i) {
    store_element<T>(data, i, std::uniform_real_distribution<T>(-8, 8)(random));
  }
}

template <class T>
void fill_whole_numbers(void* data, std::size_t count, std::mt19937& random) {
  for (std::size_t i = 0; i < count; ++i) {
    store_element<T>(data, i, T(static_cast<float>(static_cast<int>(random() % 3) - 1)));
  }
}

/// Random bytes that are valid elements of the dtype.
inline void fill(DType dtype, void* data, std::size_t count, Elements elements,
                 std::mt19937& random) {
  switch (dtype) {
    case DType::FLOAT32:
      return elements == Elements::WHOLE ? fill_whole_numbers<float>(data, count, random)
                                         : fill_floats<float>(data, count, random);
    case DType::COMPLEX64:
      return elements == Elements::WHOLE ? fill_whole_numbers<float>(data, 2 * count, random)
                                         : fill_floats<float>(data, 2 * count, random);
    case DType::FLOAT64:
      return elements == Elements::WHOLE ? fill_whole_numbers<double>(data, count, random)
                                         : fill_floats<double>(data, count, random);
    case DType::COMPLEX128:
      return elements == Elements::WHOLE ? fill_whole_numbers<double>(data, 2 * count, random)
                                         : fill_floats<double>(data, 2 * count, random);
    case DType::FLOAT16:
      if (elements == Elements::ANY) break;
      return fill_whole_numbers<float16>(data, count, random);
    case DType::BFLOAT16:
      if (elements == Elements::ANY) break;
      return fill_whole_numbers<bfloat16>(data, count, random);
    case DType::FLOAT8_E4M3:
      if (elements == Elements::ANY) break;
      return fill_whole_numbers<float8_e4m3>(data, count, random);
    case DType::FLOAT8_E5M2:
      if (elements == Elements::ANY) break;
      return fill_whole_numbers<float8_e5m2>(data, count, random);
    case DType::BOOL:
    case DType::INT8:
    case DType::INT16:
    case DType::INT32:
    case DType::INT64:
    case DType::UINT8:
    case DType::UINT16:
    case DType::UINT32:
    case DType::UINT64:
      break;
  }
  auto* const bytes = static_cast<std::uint8_t*>(data);
  for (std::size_t i = 0; i < count * size_in_bytes(dtype); ++i) {
    bytes[i] = static_cast<std::uint8_t>(random());
    if (dtype == DType::BOOL) bytes[i] &= 1;
  }
}

/// One value of a batch: the replicas' memory with a guard behind it, and what the result must be.
struct ReduceCase {
  static constexpr std::size_t kGuard = 64;

  /// `halves`: the two halves of the replicas are combined by themselves first.
  ReduceCase(ReduceOp op, DType value_dtype, std::size_t elements, std::size_t num_replicas,
             bool halves, Elements kind, std::mt19937& random)
      : dtype(value_dtype), count(elements) {
    std::vector<const void*> inputs;
    for (std::size_t r = 0; r < num_replicas; ++r) {
      memory.emplace_back(count * size_in_bytes(dtype) + kGuard, kPoison);
      fill(dtype, memory.back().data(), count, kind, random);
      inputs.push_back(memory.back().data());
    }
    const std::size_t first_group = halves && num_replicas > 1 ? num_replicas / 2 : 0;
    expected = reference_reduce(op, dtype, inputs, count, first_group);
  }

  [[nodiscard]] Tensor view(std::size_t replica, const Device& device) {
    return Tensor::view(static_cast<void*>(memory[replica].data()), dtype, Shape{count}, device);
  }
  /// Views on CPU:0, CPU:1, ...
  PerReplica value() {
    std::vector<Tensor> components;
    for (std::size_t r = 0; r < memory.size(); ++r) {
      components.push_back(view(r, Device("CPU:" + std::to_string(r))));
    }
    return PerReplica(components);
  }
  void expect_guards_untouched() const {
    for (const auto& bytes : memory) {
      for (std::size_t i = bytes.size() - kGuard; i < bytes.size(); ++i)
        ASSERT_EQ(bytes[i], kPoison);
    }
  }

  DType dtype;
  std::size_t count;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte> expected;
};

[[nodiscard]] inline ::testing::AssertionResult has_bytes(const void* data,
                                                          const std::vector<std::byte>& expected) {
  const auto* const bytes = static_cast<const std::byte*>(data);
  const auto different =
      std::mismatch(expected.begin(), expected.end(), bytes).first - expected.begin();
  const auto i = static_cast<std::size_t>(different);
  if (i == expected.size()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "byte " << i << " of " << expected.size() << " is " << static_cast<int>(bytes[i])
         << ", not " << static_cast<int>(expected[i]);
}

}  // namespace crossdevice::testing
