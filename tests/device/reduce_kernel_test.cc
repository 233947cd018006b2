// SPDX-License-Identifier: Apache-2.0
// Every kernel, on every instruction set of this machine, against the reference, bit by bit.
#include "crossdevice/device/reduce_kernel.h"

#include <gtest/gtest.h>
// Which sets exist; as the library is compiled.
#include "device/host/highway_targets.h"
// clang-format off
#include <hwy/highway.h>
// clang-format on

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "crossdevice/core/dtype.h"

#include "support/reference.h"

namespace crossdevice {
namespace {

constexpr std::byte kPoison{0xA5};
constexpr std::size_t kGuardBytes = 64;

/// Runs `body` once per instruction set that was compiled and that this processor has.
template <class Body>
void for_each_target(Body body) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    SCOPED_TRACE(reduce_kernel_target());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

/// Elements that start `misalignment` elements behind a cache line, with guard bytes before and behind.
class Buffer {
 public:
  Buffer(DType dtype, std::size_t count, std::size_t misalignment)
      : size_bytes_(count * size_in_bytes(dtype)), bytes_(size_bytes_ + 4 * kGuardBytes, kPoison) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    offset_ = kGuardBytes + (0 - address) % 64 + misalignment * size_in_bytes(dtype) % 64;
  }
  [[nodiscard]] std::byte* data() { return bytes_.data() + offset_; }
  [[nodiscard]] const std::byte* data() const { return bytes_.data() + offset_; }
  [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] bool guards_are_intact() const {
    const auto is_poison = [](std::byte b) { return b == kPoison; };
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(offset_);
    return std::all_of(bytes_.begin(), begin, is_poison) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(size_bytes_), bytes_.end(), is_poison);
  }

 private:
  std::size_t size_bytes_;
  std::vector<std::byte> bytes_;
  std::size_t offset_ = 0;
};

/// Random bits, so that floats include NaNs, infinities and subnormals; half of them near 1, so that sums round.
void fill(DType dtype, std::mt19937_64& random, Buffer& buffer) {
  for (std::size_t b = 0; b < buffer.size_bytes(); ++b)
    buffer.data()[b] = static_cast<std::byte>(random());
  const std::size_t count = buffer.size_bytes() / size_in_bytes(dtype);
  std::uniform_real_distribution<double> near_one(-2.0, 2.0);
  for (std::size_t i = 0; i < count; ++i) {
    if (dtype == DType::BOOL) buffer.data()[i] &= std::byte{1};
    if (random() % 2 == 0) continue;
    const double value = near_one(random);
    if (dtype == DType::FLOAT32)
      testing::store_element(buffer.data(), i, static_cast<float>(value));
    if (dtype == DType::FLOAT64) testing::store_element(buffer.data(), i, value);
    if (dtype == DType::FLOAT16)
      testing::store_element(buffer.data(), i, float16(static_cast<float>(value)));
    if (dtype == DType::COMPLEX64) {
      testing::store_element(buffer.data(), i,
                             std::complex<float>(static_cast<float>(value), 0.7F));
    }
    if (dtype == DType::COMPLEX128)
      testing::store_element(buffer.data(), i, std::complex<double>(0.3, value));
  }
}

struct Case {
  ReduceOp op;
  DType dtype;
  std::size_t num_inputs;
  std::size_t num_outputs;
  std::size_t count;
  std::size_t first_group = 0;
  std::size_t misalignment = 0;  // of input and output number k: k times as much
  bool in_place = false;         // the outputs are the last inputs, in reverse order
  StoreMode stores = StoreMode::CACHED;
};

std::string to_string(const Case& c) {
  return std::to_string(c.num_inputs) + " inputs, " + std::to_string(c.num_outputs) + " outputs, " +
         std::to_string(c.count) + " elements, first group " + std::to_string(c.first_group) +
         ", misalignment " + std::to_string(c.misalignment) + (c.in_place ? ", in place" : "") +
         (c.stores == StoreMode::STREAMING ? ", streaming" : "");
}

void expect_element(const Case& c, std::size_t i, const std::byte* actual,
                    const std::byte* expected, std::size_t size) {
  std::string text = "element " + std::to_string(i) + " of " + to_string(c) + ": got";
  for (std::size_t b = size; b-- > 0;)
    text += " " + std::to_string(std::to_integer<int>(actual[b]));
  text += ", expected";
  for (std::size_t b = size; b-- > 0;)
    text += " " + std::to_string(std::to_integer<int>(expected[b]));
  ADD_FAILURE() << text;
}

void check(const Case& c, std::mt19937_64& random) {
  const DType result = result_dtype(c.op, c.dtype);
  std::vector<Buffer> inputs;
  std::vector<Buffer> outputs;
  std::vector<const void*> input_pointers;
  std::vector<void*> output_pointers;
  for (std::size_t k = 0; k < c.num_inputs; ++k) {
    inputs.emplace_back(c.dtype, c.count, k * c.misalignment);
    fill(c.dtype, random, inputs.back());
  }
  for (const Buffer& input : inputs) input_pointers.push_back(input.data());
  const std::vector<Buffer> originals =
      inputs;  // copies may lie elsewhere, so only their contents count
  for (std::size_t j = 0; j < c.num_outputs; ++j)
    outputs.emplace_back(result, c.count, (j + 1) * c.misalignment);
  for (std::size_t j = 0; j < c.num_outputs; ++j) {
    output_pointers.push_back(c.in_place ? inputs[c.num_inputs - 1 - j].data() : outputs[j].data());
  }
  const std::vector<std::byte> expected =
      testing::reference_reduce(c.op, c.dtype, input_pointers, c.count, c.first_group);

  const ReduceKernel kernel = find_reduce_kernel(c.op, c.dtype);
  ASSERT_NE(kernel, nullptr);
  // In two uneven ranges, the second one first: bits must not depend on the range.
  const ReducePass pass{c.op, c.dtype, input_pointers, output_pointers, c.first_group, c.stores};
  const std::size_t middle = c.count / 3;
  kernel(pass, middle, c.count - middle);
  kernel(pass, 0, middle);

  const std::size_t size = size_in_bytes(result);
  for (std::size_t j = 0; j < c.num_outputs; ++j) {
    const auto* actual = static_cast<const std::byte*>(output_pointers[j]);
    if (c.count != 0 && std::memcmp(actual, expected.data(), expected.size()) != 0) {
      for (std::size_t i = 0; i < c.count; ++i) {
        if (std::memcmp(actual + i * size, expected.data() + i * size, size) == 0) continue;
        return expect_element(c, i, actual + i * size, expected.data() + i * size, size);
      }
    }
    ASSERT_TRUE(outputs[j].guards_are_intact()) << to_string(c);
  }
  for (const Buffer& input : inputs) ASSERT_TRUE(input.guards_are_intact()) << to_string(c);
  if (c.in_place) return;
  for (std::size_t k = 0; k < c.num_inputs; ++k) {
    ASSERT_TRUE(std::equal(inputs[k].data(), inputs[k].data() + inputs[k].size_bytes(),
                           originals[k].data()));
  }
}

class ReduceKernelTest : public ::testing::TestWithParam<std::tuple<ReduceOp, DType>> {
 protected:
  [[nodiscard]] ReduceOp op() const { return std::get<0>(GetParam()); }
  [[nodiscard]] DType dtype() const { return std::get<1>(GetParam()); }
  /// Lengths around the steps of every instruction set, and a prime.
  [[nodiscard]] std::vector<std::size_t> lengths() const {
    std::vector<std::size_t> result{0, 1, 2, 7};
    for (const std::size_t vector_bytes : std::initializer_list<std::size_t>{16, 32, 64, 256}) {
      const std::size_t lanes = vector_bytes / size_in_bytes(dtype());
      result.insert(result.end(), {lanes - 1, lanes, lanes + 1});
    }
    result.push_back(1009);
    return result;
  }
  std::mt19937_64 random_{7};
};

TEST_P(ReduceKernelTest, MatchesTheReferenceForEveryLength) {
  for_each_target([&] {
    for (const std::size_t count : lengths()) {
      for (const StoreMode stores : {StoreMode::CACHED, StoreMode::STREAMING}) {
        check({op(), dtype(), 2, 2, count, 0, 0, false, stores}, random_);
        check({op(), dtype(), 3, 1, count, 0, 1, false, stores}, random_);
      }
    }
  });
}

TEST_P(ReduceKernelTest, MatchesTheReferenceForEveryNumberOfInputsAndOutputs) {
  for_each_target([&] {
    for (const std::size_t num_inputs : std::initializer_list<std::size_t>{1, 2, 3, 4, 5, 8}) {
      for (const std::size_t num_outputs : std::initializer_list<std::size_t>{1, 2, 3, 8}) {
        for (const StoreMode stores : {StoreMode::CACHED, StoreMode::STREAMING}) {
          check({op(), dtype(), num_inputs, num_outputs, 311, 0, 0, false, stores}, random_);
        }
      }
    }
  });
}

TEST_P(ReduceKernelTest, MatchesTheReferenceForEveryFirstGroup) {
  for_each_target([&] {
    for (const std::size_t num_inputs : std::initializer_list<std::size_t>{2, 3, 4, 5, 8}) {
      for (std::size_t first_group = 1; first_group < num_inputs; ++first_group) {
        check({op(), dtype(), num_inputs, 2, 157, first_group}, random_);
      }
    }
  });
}

TEST_P(ReduceKernelTest, MatchesTheReferenceAtEveryAlignment) {
  for_each_target([&] {
    for (std::size_t misalignment = 1; misalignment * size_in_bytes(dtype()) < 64;
         misalignment += 3) {
      for (const StoreMode stores : {StoreMode::CACHED, StoreMode::STREAMING}) {
        check({op(), dtype(), 3, 3, 601, 0, misalignment, false, stores}, random_);
      }
    }
  });
}

using InPlaceReduceKernelTest = ReduceKernelTest;

TEST_P(InPlaceReduceKernelTest, MatchesTheReference) {
  for_each_target([&] {
    for (const std::size_t num_inputs : std::initializer_list<std::size_t>{1, 2, 3, 4, 5, 8}) {
      for (const StoreMode stores : {StoreMode::CACHED, StoreMode::STREAMING}) {
        check({op(), dtype(), num_inputs, num_inputs, 701, 0, 1, true, stores}, random_);
        check({op(), dtype(), num_inputs, 1, 513, num_inputs / 2, 0, true, stores}, random_);
      }
    }
  });
}

std::vector<std::tuple<ReduceOp, DType>> combinations(bool in_place) {
  std::vector<std::tuple<ReduceOp, DType>> result;
  for (const ReduceOp op : kAllReduceOps) {
    for (const DType dtype : kAllDTypes) {
      if (!is_supported(op, dtype)) continue;
      if (!in_place || result_dtype(op, dtype) == dtype) result.emplace_back(op, dtype);
    }
  }
  return result;
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<ReduceOp, DType>>& test) {
  return std::string(to_string(std::get<0>(test.param))) + "_" +
         std::string(to_string(std::get<1>(test.param)));
}

INSTANTIATE_TEST_SUITE_P(EveryOpAndDType, ReduceKernelTest,
                         ::testing::ValuesIn(combinations(false)), name_of);
INSTANTIATE_TEST_SUITE_P(EveryOpAndDType, InPlaceReduceKernelTest,
                         ::testing::ValuesIn(combinations(true)), name_of);

TEST(FindReduceKernelTest, HasAKernelExactlyWhereTheTableOfOpsAndDTypesSaysSo) {
  for (const ReduceOp op : kAllReduceOps) {
    for (const DType dtype : kAllDTypes) {
      EXPECT_EQ(find_reduce_kernel(op, dtype) != nullptr, is_supported(op, dtype))
          << to_string(op) << to_string(dtype);
    }
  }
}

TEST(ReduceKernelTargetTest, NamesAnInstructionSetOfThisProcessor) {
  for_each_target([] { EXPECT_STRNE(reduce_kernel_target(), "Unknown"); });
}

/// x + y for every x of a small type and some y; with y = -0 it is x itself, through both conversions.
template <class T, class Bits>
void expect_every_pattern_to_sum_as_the_reference(DType dtype, const std::vector<float>& others) {
  std::vector<T> all(std::size_t{1} << (8 * sizeof(Bits)));
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<Bits>(i);
  for (const float other : others) {
    const std::vector<T> second(all.size(), T(other));
    std::vector<T> sum(all.size());
    const void* const inputs[] = {all.data(), second.data()};
    void* const outputs[] = {sum.data()};
    find_reduce_kernel(ReduceOp::SUM, dtype)({ReduceOp::SUM, dtype, inputs, outputs}, 0,
                                             all.size());
    const auto expected = testing::reference_reduce(ReduceOp::SUM, dtype, inputs, all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(sum[i].bits, testing::load_element<Bits>(expected.data(), i))
          << "pattern " << i << " + " << other;
    }
  }
}

TEST(ReduceKernelSmallFloatTest, ConvertsEveryPatternAsTheScalarConversionsDo) {
  for_each_target([] {
    const float infinity = std::numeric_limits<float>::infinity();
    expect_every_pattern_to_sum_as_the_reference<float16, std::uint16_t>(
        DType::FLOAT16,
        {-0.0F, 1.0F, 6e-8F, 3e-5F, -6.1e-5F, 31.97F, 65504.0F, infinity, -infinity});
    expect_every_pattern_to_sum_as_the_reference<bfloat16, std::uint16_t>(
        DType::BFLOAT16, {-0.0F, 1.0F, 1e-40F, -1.2e-38F, 3.3e38F, infinity});
    expect_every_pattern_to_sum_as_the_reference<float8_e5m2, std::uint8_t>(
        DType::FLOAT8_E5M2, {-0.0F, 1.0F, 1.6e-5F, -0.00003F, 0.3F, 57344.0F, 8192.0F, infinity});
    expect_every_pattern_to_sum_as_the_reference<float8_e4m3, std::uint8_t>(
        DType::FLOAT8_E4M3, {-0.0F, 1.0F, 0.002F, -0.015F, 0.3F, 16.0F, 18.0F, -32.0F, 448.0F});
  });
}

TEST(ReduceKernelFloatTest, PropagatesNanAndOrdersZerosInMinAndMax) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float a[] = {nan, 1.0F, -0.0F, 0.0F, nan, -0.0F};
  const float b[] = {1.0F, nan, 0.0F, -0.0F, nan, -0.0F};
  const void* const inputs[] = {a, b};
  for_each_target([&] {
    float smallest[6];
    float largest[6];
    void* const smallest_outputs[] = {smallest};
    void* const largest_outputs[] = {largest};
    find_reduce_kernel(ReduceOp::MIN, DType::FLOAT32)(
        {ReduceOp::MIN, DType::FLOAT32, inputs, smallest_outputs}, 0, 6);
    find_reduce_kernel(ReduceOp::MAX, DType::FLOAT32)(
        {ReduceOp::MAX, DType::FLOAT32, inputs, largest_outputs}, 0, 6);
    for (const std::size_t i : std::initializer_list<std::size_t>{0, 1, 4}) {
      EXPECT_TRUE(std::isnan(smallest[i]));
      EXPECT_TRUE(std::isnan(largest[i]));
    }
    for (const std::size_t i : std::initializer_list<std::size_t>{2, 3}) {
      EXPECT_TRUE(std::signbit(smallest[i]));
      EXPECT_FALSE(std::signbit(largest[i]));
    }
    EXPECT_TRUE(std::signbit(smallest[5]));
    EXPECT_TRUE(std::signbit(largest[5]));
  });
}

TEST(DivideElementsTest, DividesAsMeanDoes) {
  std::mt19937_64 random(3);
  for_each_target([&] {
    for (const DType dtype : kAllDTypes) {
      if (!is_floating(dtype) && !is_complex(dtype)) continue;
      for (const std::size_t count : std::initializer_list<std::size_t>{0, 1, 5, 200}) {
        Buffer data(dtype, count, 1);
        Buffer zero(dtype, count, 0);
        fill(dtype, random, data);
        std::memset(zero.data(), 0, zero.size_bytes());
        // x + 0 + 0 is x but for -0, which the division by a positive number keeps; so zeros get the sign of x.
        const void* const inputs[] = {data.data(), zero.data(), zero.data()};
        auto expected = testing::reference_reduce(ReduceOp::MEAN, dtype, inputs, count);
        Buffer divided = data;
        divide_elements(dtype, divided.data(), count, 3.0);
        const std::size_t scalar = size_in_bytes(dtype) / (is_complex(dtype) ? 2 : 1);
        for (std::size_t i = 0; i < count * (is_complex(dtype) ? 2 : 1); ++i) {
          std::byte* const wanted = expected.data() + i * scalar;
          const std::byte* const original = data.data() + i * scalar;
          const bool is_zero =
              std::all_of(wanted, wanted + scalar, [](std::byte b) { return b == std::byte{0}; });
          if (is_zero) wanted[scalar - 1] |= original[scalar - 1] & std::byte{0x80};
          ASSERT_EQ(std::memcmp(wanted, divided.data() + i * scalar, scalar), 0)
              << to_string(dtype) << " " << i;
        }
        ASSERT_TRUE(divided.guards_are_intact());
      }
    }
  });
}

TEST(AccumulateElementsTest, AddsARowInPlace) {
  std::mt19937_64 random(5);
  for_each_target([&] {
    for (const DType dtype : kAllDTypes) {
      if (!is_supported(ReduceOp::SUM, dtype)) continue;
      for (const std::size_t count : std::initializer_list<std::size_t>{0, 1, 3, 130}) {
        Buffer accumulator(dtype, count, 0);
        Buffer row(dtype, count, 1);
        fill(dtype, random, accumulator);
        fill(dtype, random, row);
        const void* const inputs[] = {accumulator.data(), row.data()};
        const auto expected = testing::reference_reduce(ReduceOp::SUM, dtype, inputs, count);
        accumulate_elements(dtype, accumulator.data(), row.data(), count);
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), accumulator.data()))
            << to_string(dtype);
        ASSERT_TRUE(accumulator.guards_are_intact());
      }
    }
  });
}

TEST(CopyBytesTest, CopiesExactlyTheBytesInBothStoreModes) {
  std::mt19937_64 random(9);
  for_each_target([&] {
    for (const StoreMode stores : {StoreMode::CACHED, StoreMode::STREAMING}) {
      for (const std::size_t count :
           std::initializer_list<std::size_t>{0, 1, 63, 64, 65, 255, 256, 257, 1009, 5003}) {
        for (const std::size_t misalignment : std::initializer_list<std::size_t>{0, 1, 17}) {
          Buffer source(DType::UINT8, count, 3);
          Buffer destination(DType::UINT8, count, misalignment);
          fill(DType::UINT8, random, source);
          copy_bytes(destination.data(), source.data(), count, stores);
          ASSERT_TRUE(std::equal(source.data(), source.data() + count, destination.data()));
          ASSERT_TRUE(destination.guards_are_intact());
        }
      }
    }
  });
}

}  // namespace
}  // namespace crossdevice
