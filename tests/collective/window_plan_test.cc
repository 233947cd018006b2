// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/window_plan.h"

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

namespace crossdevice::detail {
namespace {

/// Values of one input and one output of these sizes.
class Batch {
 public:
  Batch(DType dtype, const std::vector<std::size_t>& counts) {
    for (const std::size_t count : counts)
      tensors_.push_back(Tensor::empty(dtype, {count}, "CPU:0"));
    for (const Tensor& tensor : tensors_) {
      const std::span<const Tensor> one(&tensor, 1);
      values_.push_back({one, one});
    }
  }
  [[nodiscard]] std::span<const CollectiveValue> values() const { return values_; }
  [[nodiscard]] std::size_t count(std::size_t value) const {
    return tensors_[value].num_elements();
  }

 private:
  std::vector<Tensor> tensors_;
  std::vector<CollectiveValue> values_;
};

/// Every element is in one window, in order; windows and the plan's maximum keep what they promise.
void expect_whole(const WindowPlan& plan, const Batch& batch, std::size_t element_bytes,
                  std::size_t window_bytes) {
  std::vector<std::size_t> next(batch.values().size());
  std::size_t last_value = 0;
  for (std::size_t w = 0; w < plan.size(); ++w) {
    std::size_t staged = 0;
    std::size_t raw = 0;
    for (const WindowSlice& slice : plan.window(w)) {
      EXPECT_GE(slice.value, last_value);
      last_value = slice.value;
      EXPECT_EQ(slice.begin, next[slice.value]);
      EXPECT_GT(slice.count, 0U);
      next[slice.value] += slice.count;
      staged += 2 * WindowPlan::aligned(slice.count * element_bytes);
      raw += 2 * slice.count * element_bytes;
    }
    EXPECT_LE(staged, plan.max_staged_bytes());
    // One cut's worth of elements goes into a window even where it is smaller.
    if (window_bytes != WindowPlan::kWhole) {
      EXPECT_LE(raw, std::max(window_bytes, 2 * 1024 * element_bytes));
    }
  }
  for (std::size_t v = 0; v < next.size(); ++v) EXPECT_EQ(next[v], batch.count(v)) << v;
}

TEST(WindowPlanTest, WindowsCoverEveryElementOnceInOrder) {
  WindowPlan plan;
  for (const DType dtype : {DType::UINT8, DType::FLOAT32, DType::COMPLEX128}) {
    const Batch batch(dtype, {0, 1, 1023, 1024, 1025, 0, 70'001, 7, 7, 7, 300'000, 2});
    for (const std::size_t window : {std::size_t{1}, std::size_t{1} << 12, std::size_t{1} << 16,
                                     std::size_t{1} << 20, WindowPlan::kWhole}) {
      plan.rebuild(ReduceOp::SUM, batch.values(), window, 1);
      expect_whole(plan, batch, size_in_bytes(dtype), window);
      if (window == WindowPlan::kWhole) {
        EXPECT_EQ(plan.size(), 1U);
      }
    }
  }
}

/// Every owner has its share of each window, but for a cut's worth of elements at either end.
void expect_even(const WindowPlan& plan, std::size_t element_bytes, std::size_t num_owners) {
  for (std::size_t w = 0; w < plan.size(); ++w) {
    std::vector<std::size_t> shares(num_owners);
    std::size_t whole = 0;
    std::size_t last_owner = 0;
    for (const WindowSlice& slice : plan.window(w)) {
      ASSERT_LT(slice.owner, num_owners);
      EXPECT_GE(slice.owner, last_owner);
      last_owner = slice.owner;
      shares[slice.owner] += 2 * slice.count * element_bytes;
      whole += 2 * slice.count * element_bytes;
    }
    const std::size_t cut = 64 * 2 * element_bytes + num_owners;
    for (const std::size_t share : shares) {
      EXPECT_LE(share, whole / num_owners + cut) << w;
      EXPECT_GE(share + cut, whole / num_owners) << w;
    }
  }
}

TEST(WindowPlanTest, WorkersGetEvenPartsOfEachWindowInTheOrderOfTheirRanks) {
  WindowPlan plan;
  for (const DType dtype : {DType::UINT8, DType::FLOAT32, DType::COMPLEX128}) {
    const Batch batch(dtype, {0, 1, 1023, 1024, 1025, 0, 70'001, 7, 7, 7, 300'000, 2});
    for (const std::size_t window : {std::size_t{1}, std::size_t{1} << 16, std::size_t{1} << 20}) {
      for (std::size_t num_owners = 1; num_owners <= 64; ++num_owners) {
        plan.rebuild(ReduceOp::SUM, batch.values(), window, num_owners);
        expect_whole(plan, batch, size_in_bytes(dtype), window);
        expect_even(plan, size_in_bytes(dtype), num_owners);
      }
    }
  }
}

TEST(WindowPlanTest, NothingIsOneWindow) {
  WindowPlan plan;
  const Batch batch(DType::FLOAT32, {0, 0});
  plan.rebuild(ReduceOp::SUM, batch.values(), 4096, 1);
  ASSERT_EQ(plan.size(), 1U);
  EXPECT_TRUE(plan.window(0).empty());
  EXPECT_EQ(plan.max_staged_bytes(), 0U);
}

TEST(WindowPlanTest, LargeValuesAreCutAtLines) {
  WindowPlan plan;
  const Batch batch(DType::UINT8, {10'000'001});
  plan.rebuild(ReduceOp::SUM, batch.values(), 1'000'000, 1);
  EXPECT_GE(plan.size(), 20U);
  for (std::size_t w = 0; w < plan.size(); ++w) {
    EXPECT_EQ(plan.window(w)[0].begin % 1024, 0U);
  }
}

}  // namespace
}  // namespace crossdevice::detail
