// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/nccl_rounds.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

namespace crossdevice::detail {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

NcclRounds rounds_of(const std::vector<TensorSize>& tensors, const PackingOptions& packing) {
  NcclRounds rounds;
  const std::vector<Pack> packs =
      packing == PackingOptions() ? std::vector<Pack>() : make_packs(tensors, packing);
  make_nccl_rounds(tensors, packs, static_cast<std::size_t>(packing.bytes_per_pack.value()),
                   rounds);
  return rounds;
}

/// Every element of every tensor is in one piece; pieces of a round have its dtype; staged ones overlap nothing and end where the round says.
void expect_whole(const NcclRounds& rounds, const std::vector<TensorSize>& tensors) {
  std::vector<std::vector<ElementRange>> ranges(tensors.size());
  for (const NcclRound& round : rounds.rounds) {
    ASSERT_GT(round.num_pieces, 0u);
    std::size_t end = 0;
    for (const NcclPiece& piece : rounds.pieces_of(round)) {
      EXPECT_EQ(tensors[piece.range.tensor].dtype, round.dtype);
      EXPECT_GT(piece.range.count, 0u);
      ranges[piece.range.tensor].push_back(piece.range);
      if (!piece.is_staged) continue;
      EXPECT_EQ(piece.offset_bytes % 16, 0u);
      EXPECT_GE(piece.offset_bytes, end);
      end = piece.offset_bytes + piece.range.count * size_in_bytes(round.dtype);
    }
    EXPECT_EQ(round.staged_bytes, end);
  }
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    std::sort(ranges[t].begin(), ranges[t].end(),
              [](const ElementRange& a, const ElementRange& b) { return a.begin < b.begin; });
    std::size_t next = 0;
    for (const ElementRange& range : ranges[t]) {
      EXPECT_EQ(range.begin, next);
      next += range.count;
    }
    EXPECT_EQ(next, tensors[t].num_elements) << "tensor " << t;
  }
}

TEST(NcclRounds, OneTensorGoesWhereItLiesWhateverItsSize) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, 3 * kMiB}) {
    const std::vector<TensorSize> tensors{{DType::FLOAT32, count}};
    const NcclRounds rounds = rounds_of(tensors, {.num_packs = 1});
    expect_whole(rounds, tensors);
    ASSERT_EQ(rounds.rounds.size(), 1u);
    EXPECT_EQ(rounds.pieces.size(), 1u);
    EXPECT_EQ(rounds.staging_bytes(), 0u);
  }
}

TEST(NcclRounds, ManySmallTensorsAreStagedTogetherAndLargeOnesAreNot) {
  const std::vector<TensorSize> tensors{{DType::FLOAT32, 10},
                                        {DType::FLOAT32, kMiB / 4 - 1},
                                        {DType::FLOAT32, kMiB / 4},
                                        {DType::FLOAT32, 3}};
  const NcclRounds rounds = rounds_of(tensors, {.bytes_per_pack = 64 << 20});
  expect_whole(rounds, tensors);
  ASSERT_EQ(rounds.rounds.size(), 1u);
  for (const NcclPiece& piece : rounds.pieces) {
    EXPECT_EQ(piece.is_staged, piece.range.tensor != 2) << piece.range.tensor;
  }
}

TEST(NcclRounds, NothingIsStagedThatIsAsLargeAsItsPack) {
  // With bytes_per_pack 100 a tensor of 100 bytes fills a pack: copying it would save no call.
  const std::vector<TensorSize> tensors{{DType::UINT8, 100}, {DType::UINT8, 99}, {DType::UINT8, 2}};
  const NcclRounds rounds = rounds_of(tensors, {.bytes_per_pack = 100});
  expect_whole(rounds, tensors);
  for (const NcclPiece& piece : rounds.pieces) {
    EXPECT_EQ(piece.is_staged, piece.range.count < 100) << piece.range.tensor;
  }
}

TEST(NcclRounds, WhatDoesNotFitIntoABufferBecomesAnotherRound) {
  // 200 tensors of 0.9 MiB in one pack: 64 MiB hold 71 of them.
  const std::vector<TensorSize> tensors(200, {DType::UINT8, kMiB * 9 / 10});
  const NcclRounds rounds = rounds_of(tensors, {.num_packs = 1});
  expect_whole(rounds, tensors);
  EXPECT_EQ(rounds.rounds.size(), 3u);
  EXPECT_EQ(rounds.num_staged_rounds(), 3u);
  EXPECT_LE(rounds.staging_bytes(), kUnpackedStagingBytes);
  EXPECT_GT(rounds.staging_bytes(), kUnpackedStagingBytes - kMiB);
}

TEST(NcclRounds, BuffersAreBoundedByThePackSize) {
  const std::vector<TensorSize> tensors(1000, {DType::FLOAT16, 12345});
  for (const Int64 bytes : {Int64(1), Int64(30000), Int64(100000), Int64(1 << 20)}) {
    const NcclRounds rounds = rounds_of(tensors, {.bytes_per_pack = bytes});
    expect_whole(rounds, tensors);
    EXPECT_LE(rounds.staging_bytes(), static_cast<std::size_t>(bytes.value()) + kMiB);
  }
}

TEST(NcclRounds, TensorsWithoutElementsAndMixedTypes) {
  const std::vector<TensorSize> tensors{{DType::FLOAT32, 0}, {DType::INT8, 7},
                                        {DType::FLOAT32, 5}, {DType::COMPLEX128, 3},
                                        {DType::INT8, 0},    {DType::INT8, 1}};
  for (const PackingOptions& packing :
       {PackingOptions(), PackingOptions{.num_packs = 1}, PackingOptions{.num_packs = 3},
        PackingOptions{.bytes_per_pack = 8}}) {
    expect_whole(rounds_of(tensors, packing), tensors);
  }
  const std::vector<TensorSize> none{{DType::FLOAT32, 0}};
  EXPECT_TRUE(rounds_of(none, {.num_packs = 1}).rounds.empty());
}

TEST(NcclRounds, MemoryIsKept) {
  const std::vector<TensorSize> tensors(50, {DType::FLOAT32, 77});
  const std::vector<Pack> packs = make_packs(tensors, {.num_packs = 4});
  NcclRounds rounds;
  make_nccl_rounds(tensors, packs, 0, rounds);
  const NcclPiece* const pieces = rounds.pieces.data();
  make_nccl_rounds(tensors, packs, 0, rounds);
  EXPECT_EQ(rounds.pieces.data(), pieces);
  expect_whole(rounds, tensors);
}

}  // namespace
}  // namespace crossdevice::detail
