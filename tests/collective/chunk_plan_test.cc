// SPDX-License-Identifier: Apache-2.0
/// Chunks of a batch: complete, in order, of bounded size, cut at pages.
#include "collective/detail/chunk_plan.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace crossdevice::detail {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMaxChunkBytes = 256 * kKiB;
constexpr std::size_t kPageBytes = 4 * kKiB;

/// A batch of tensors with `n` inputs and outputs; nobody follows the pointers.
class Batch {
 public:
  Batch(const std::vector<TensorSize>& sizes, std::size_t n) : inputs_(n), outputs_(n) {
    for (const TensorSize& size : sizes) {
      tensors_.push_back({size.dtype, size.num_elements, inputs_, outputs_});
    }
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  [[nodiscard]] const std::vector<DirectReduceTensor>& tensors() const { return tensors_; }

 private:
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<DirectReduceTensor> tensors_;
};

std::vector<TensorSize> float32_sizes(const std::vector<std::size_t>& counts) {
  std::vector<TensorSize> sizes;
  for (const std::size_t count : counts) sizes.push_back({DType::FLOAT32, count});
  return sizes;
}

ChunkPlan plan_of(const std::vector<TensorSize>& sizes, const std::vector<Pack>& packs = {},
                  std::size_t num_threads = 2) {
  const Batch batch(sizes, 2);
  ChunkPlan plan;
  plan.rebuild(ReduceOp::SUM, batch.tensors(), packs, num_threads);
  return plan;
}

std::vector<ElementRange> all_pieces(const ChunkPlan& plan) {
  std::vector<ElementRange> pieces;
  for (std::size_t chunk = 0; chunk < plan.num_chunks(); ++chunk) {
    EXPECT_FALSE(plan.chunk(chunk).empty());
    pieces.insert(pieces.end(), plan.chunk(chunk).begin(), plan.chunk(chunk).end());
  }
  return pieces;
}

/// The pieces with those that continue each other put together again.
std::vector<ElementRange> joined(const std::vector<ElementRange>& pieces) {
  std::vector<ElementRange> ranges;
  for (const ElementRange& piece : pieces) {
    const bool continues = !ranges.empty() && ranges.back().tensor == piece.tensor &&
                           ranges.back().begin + ranges.back().count == piece.begin;
    if (continues) {
      ranges.back().count += piece.count;
    } else {
      ranges.push_back(piece);
    }
  }
  return ranges;
}

std::vector<ElementRange> ranges_of(const std::vector<Pack>& packs) {
  std::vector<ElementRange> ranges;
  for (const Pack& pack : packs) {
    ranges.insert(ranges.end(), pack.ranges.begin(), pack.ranges.end());
  }
  return joined(ranges);
}

TEST(ChunkPlanTest, ALargeTensorIsCutAtPagesIntoChunksOfBoundedSize) {
  const std::size_t count = 5'000'011;
  const ChunkPlan plan = plan_of(float32_sizes({count}));
  EXPECT_EQ(joined(all_pieces(plan)), (std::vector<ElementRange>{{0, 0, count}}));
  EXPECT_GE(plan.num_chunks(), count * 4 / kMaxChunkBytes);
  EXPECT_LE(plan.num_chunks(), count * 4 / kMaxChunkBytes * 11 / 10 + 1);
  for (std::size_t chunk = 0; chunk < plan.num_chunks(); ++chunk) {
    ASSERT_EQ(plan.chunk(chunk).size(), 1u);
    const ElementRange& piece = plan.chunk(chunk)[0];
    EXPECT_EQ(piece.begin * 4 % kPageBytes, 0u);
    EXPECT_LE(piece.count * 4, kMaxChunkBytes);
  }
  EXPECT_EQ(plan.pieces_per_tensor()[0], plan.num_chunks());
}

TEST(ChunkPlanTest, ManySmallTensorsShareAChunk) {
  const ChunkPlan plan = plan_of(float32_sizes(std::vector<std::size_t>(50, 10)));
  EXPECT_EQ(plan.num_chunks(), 1u);
  EXPECT_EQ(plan.chunk(0).size(), 50u);
  for (const std::uint32_t pieces : plan.pieces_per_tensor()) EXPECT_EQ(pieces, 1u);
}

TEST(ChunkPlanTest, AMediumTensorIsSharedByAllThreads) {
  for (const std::size_t threads : {1u, 2u, 8u, 32u}) {
    EXPECT_GE(plan_of(float32_sizes({1 << 20}), {}, threads).num_chunks(), threads);
  }
}

TEST(ChunkPlanTest, TensorsWithoutElementsHaveOneEmptyPiece) {
  const ChunkPlan plan = plan_of(float32_sizes({0, 7, 0}));
  EXPECT_EQ(all_pieces(plan), (std::vector<ElementRange>{{0, 0, 0}, {1, 0, 7}, {2, 0, 0}}));
  EXPECT_EQ(plan_of({}).num_chunks(), 0u);
}

TEST(ChunkPlanTest, TrafficCountsEveryStream) {
  const std::vector<TensorSize> sizes{{DType::INT8, 100}, {DType::FLOAT64, 10}};
  const Batch batch(sizes, 3);
  ChunkPlan plan;
  plan.rebuild(ReduceOp::SUM, batch.tensors(), {}, 2);
  EXPECT_EQ(plan.traffic_bytes(), 100u * 6 + 10 * 6 * 8);
  plan.rebuild(ReduceOp::MEAN, batch.tensors(), {}, 2);  // int8 becomes float32
  EXPECT_EQ(plan.traffic_bytes(), 100u * (3 + 3 * 4) + 10 * 6 * 8);
}

TEST(ChunkPlanTest, TheResultsWidthLimitsChunksToo) {
  const std::vector<TensorSize> sizes{{DType::INT8, std::size_t{1} << 22}};
  const Batch batch(sizes, 2);
  ChunkPlan plan;
  plan.rebuild(ReduceOp::MEAN, batch.tensors(), {}, 2);
  for (const ElementRange& piece : all_pieces(plan)) EXPECT_LE(piece.count * 4, kMaxChunkBytes);
}

TEST(ChunkPlanTest, HoldsTheRangesOfThePacksInTheirOrder) {
  std::mt19937 random(7);
  const DType dtypes[] = {DType::FLOAT32, DType::BFLOAT16, DType::COMPLEX128};
  ChunkPlan plan;  // one for all rounds: nothing of an earlier one may remain
  for (int round = 0; round < 100; ++round) {
    std::vector<TensorSize> sizes(random() % 40);
    for (TensorSize& size : sizes) {
      const std::size_t limit = random() % 4 == 0 ? 200'000 : 100;
      size = {dtypes[random() % std::size(dtypes)], random() % limit};
    }
    const PackingOptions rules[] = {
        {},
        {.num_packs = 3},
        {.agg_small_grads_max_bytes = 400, .agg_small_grads_max_group = 4},
        {.bytes_per_pack = 100'000}};
    const Batch batch(sizes, 1 + random() % 4);
    for (const PackingOptions& rule : rules) {
      const std::vector<Pack> packs = make_packs(sizes, rule);
      plan.rebuild(ReduceOp::SUM, batch.tensors(), packs, 1 + random() % 8);
      const std::vector<ElementRange> pieces = all_pieces(plan);
      EXPECT_EQ(joined(pieces), ranges_of(packs));
      std::vector<std::uint32_t> pieces_per_tensor(sizes.size(), 0);
      for (const ElementRange& piece : pieces) ++pieces_per_tensor[piece.tensor];
      EXPECT_TRUE(std::ranges::equal(plan.pieces_per_tensor(), pieces_per_tensor));
    }
  }
}

}  // namespace
}  // namespace crossdevice::detail
