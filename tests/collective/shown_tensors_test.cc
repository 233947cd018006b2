// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/shown_tensors.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

/// A block of so many bytes that begins with these numbers.
std::vector<RemoteTensor> read_block(const std::vector<std::uint64_t>& words, std::size_t size) {
  std::vector<std::byte> block(size);
  if (!words.empty()) std::memcpy(block.data(), words.data(), words.size() * sizeof words[0]);
  return read_shown(block,
                    {.description_bytes = words.size() * sizeof words[0], .total_bytes = size}, 2);
}

TEST(ShownTensorsTest, AreReadAsTheyWereWritten) {
  std::vector<std::int32_t> integers{1, 2, 3};
  std::vector<double> numbers{4, 5};
  const Tensor first = Tensor::view(std::span(integers), Shape({3}), "CPU:0");
  const Tensor nothing = Tensor::empty(DType::FLOAT64, {0, 4}, "CPU:0");
  const Tensor last = Tensor::view(std::span(numbers), Shape({2, 1}), "CPU:0");
  const std::vector<Tensor> tensors{first, nothing, last};
  const std::vector<std::uint64_t> description = describe(tensors);
  const ShownSize size = shown_size(description, tensors);
  std::vector<std::byte> block(size.total_bytes);
  write_shown(description, tensors, block.data());
  const std::vector<RemoteTensor> read = read_shown(block, size, 0);
  ASSERT_EQ(read.size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(read[i].dtype, tensors[i].dtype());
    EXPECT_EQ(read[i].shape, tensors[i].shape());
    if (tensors[i].size_bytes() == 0) {
      EXPECT_EQ(read[i].data, nullptr);
    } else {
      EXPECT_EQ(std::memcmp(read[i].data, tensors[i].data(), tensors[i].size_bytes()), 0);
    }
  }
}

TEST(ShownTensorsTest, LieOneBehindTheOther) {
  const std::vector<ShownSize> sizes{{8, 64}, {8, 0}, {8, 128}};
  EXPECT_THAT(place_shown(sizes),
              ::testing::ElementsAre(Interval{0, 64}, Interval{64, 0}, Interval{64, 128}));
}

// Their sum would be 64, and the second rank's place 64 bytes before the row.
TEST(ShownTensorsTest, SizesThatPassTheEndOfMemoryAreRefused) {
  EXPECT_THAT(
      [] {
        (void)place_shown(std::vector<ShownSize>{{8, kMost - 63}, {8, 128}});
      },
      ThrowsMessage<InternalError>(
          HasSubstr("rank 0 says that it shows 18446744073709551552 bytes")));
  EXPECT_THAT(
      [] {
        (void)place_shown(std::vector<ShownSize>{{8, 64}, {8, 128}, {8, kMost / 2}});
      },
      ThrowsMessage<InternalError>(HasSubstr("rank 2 says that it shows")));
}

TEST(ShownTensorsTest, WhatDoesNotFitIntoItsBlockIsRefused) {
  const auto float64 = static_cast<std::uint64_t>(DType::FLOAT64);
  const std::vector<std::vector<std::uint64_t>> all{
      {1, float64, 1, 3},                        // of three elements there are two
      {1, float64, 1, std::uint64_t{1} << 61U},  // whose bytes are 0, counted in 64 bits
      {1, float64, 2, std::uint64_t{1} << 40U, std::uint64_t{1} << 40U},
      {1, float64, 1, kMost},
      {1, kNumDTypes, 1, 1},
      {1, float64, kMost},
      {kMost},
      {}};
  for (const std::vector<std::uint64_t>& words : all) {
    EXPECT_THAT(
        [&] { (void)read_block(words, 64 + 2 * sizeof(double)); },
        ThrowsMessage<InternalError>(HasSubstr("rank 2 showed tensors that cannot be read")))
        << ::testing::PrintToString(words);
  }
  EXPECT_EQ(read_block({1, float64, 1, 2}, 64 + 2 * sizeof(double)).size(), 1U);
  EXPECT_THAT([] { (void)read_shown({}, {.description_bytes = 8, .total_bytes = 0}, 2); },
              ThrowsMessage<InternalError>(HasSubstr("rank 2 showed")));
}

}  // namespace
}  // namespace crossdevice::detail
