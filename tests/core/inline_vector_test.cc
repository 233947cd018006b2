// SPDX-License-Identifier: Apache-2.0
// An inline vector behaves like std::vector on both sides of its inline capacity, and allocates only beyond it.
#include "crossdevice/core/inline_vector.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "support/allocation_counter.h"

namespace crossdevice::detail {
namespace {

using Strings = InlineVector<std::string, 3>;

std::string item(std::size_t i) {
  return "a text too long to lie inside a string object, number " + std::to_string(i);
}

Strings make(std::size_t size) {
  Strings result;
  for (std::size_t i = 0; i < size; ++i) result.push_back(item(i));
  return result;
}

void expect_holds(const Strings& vector, std::size_t size) {
  ASSERT_EQ(vector.size(), size);
  EXPECT_EQ(vector.empty(), size == 0);
  EXPECT_EQ(vector.end() - vector.begin(), static_cast<std::ptrdiff_t>(size));
  EXPECT_EQ(vector.view().size(), size);
  for (std::size_t i = 0; i < size; ++i) {
    EXPECT_EQ(vector[i], item(i));
    EXPECT_EQ(vector.data()[i], item(i));
    EXPECT_EQ(&vector.view()[i], &vector[i]);
  }
}

class InlineVectorTest : public ::testing::TestWithParam<std::size_t> {};

TEST_P(InlineVectorTest, HoldsWhatWasPushedInOrder) { expect_holds(make(GetParam()), GetParam()); }

TEST_P(InlineVectorTest, ElementsCanBeChangedInPlace) {
  Strings vector = make(GetParam());
  for (std::string& element : vector) element += "!";
  for (std::size_t i = 0; i < vector.size(); ++i) EXPECT_EQ(vector[i], item(i) + "!");
}

TEST_P(InlineVectorTest, CopiesAreEqualAndIndependent) {
  const Strings original = make(GetParam());
  Strings copy = original;
  expect_holds(copy, GetParam());
  copy.push_back("new");
  for (std::string& element : copy) element = "changed";
  expect_holds(original, GetParam());
  expect_holds(Strings::copy_of(original.view()), GetParam());
}

TEST_P(InlineVectorTest, CopyAndMoveAssignmentReplaceVectorsOfEverySize) {
  for (const std::size_t old_size : {0u, 2u, 3u, 4u, 9u}) {
    const Strings source = make(GetParam());
    Strings copied = make(old_size);
    copied = source;
    expect_holds(copied, GetParam());
    expect_holds(source, GetParam());
    Strings moved = make(old_size);
    moved = make(GetParam());
    expect_holds(moved, GetParam());
  }
}

TEST_P(InlineVectorTest, AMovedFromVectorIsEmptyAndCanBeUsedAgain) {
  Strings source = make(GetParam());
  const Strings taken = std::move(source);
  expect_holds(taken, GetParam());
  expect_holds(source, 0);  // NOLINT(bugprone-use-after-move): this is what is tested
  source = make(GetParam());
  Strings assigned;
  assigned = std::move(source);
  expect_holds(assigned, GetParam());
  expect_holds(source, 0);  // NOLINT(bugprone-use-after-move)
  for (std::size_t i = 0; i < 5; ++i) source.push_back(item(i));
  expect_holds(source, 5);
}

TEST_P(InlineVectorTest, AssigningToItselfChangesNothing) {
  Strings vector = make(GetParam());
  Strings& alias = vector;
  vector = alias;
  expect_holds(vector, GetParam());
  vector = std::move(alias);
  expect_holds(vector, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Sizes, InlineVectorTest, ::testing::Values(0, 1, 2, 3, 4, 5, 6, 7, 20));

TEST(InlineVectorMemoryTest, AllocatesNothingUpToItsInlineCapacity) {
  if (!testing::can_count_allocations()) GTEST_SKIP() << "a sanitizer has replaced the heap";
  const std::size_t before = testing::num_allocations_of_this_thread();
  InlineVector<int, 3> vector;
  for (int i = 0; i < 3; ++i) vector.push_back(i);
  InlineVector<int, 3> copy = vector;
  const InlineVector<int, 3> moved = std::move(copy);
  copy = moved;
  EXPECT_EQ(testing::num_allocations_of_this_thread(), before);
  EXPECT_EQ(moved.size(), 3u);
}

TEST(InlineVectorMemoryTest, OneElementMoreAllocatesOnce) {
  if (!testing::can_count_allocations()) GTEST_SKIP() << "a sanitizer has replaced the heap";
  InlineVector<int, 3> vector;
  for (int i = 0; i < 3; ++i) vector.push_back(i);
  const std::size_t before = testing::num_allocations_of_this_thread();
  vector.push_back(3);
  EXPECT_EQ(testing::num_allocations_of_this_thread(), before + 1);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(vector[static_cast<std::size_t>(i)], i);
}

TEST(InlineVectorMemoryTest, SpillingLeavesNoOwnersBehind) {
  const auto shared = std::make_shared<int>(1);
  InlineVector<std::shared_ptr<int>, 2> vector;
  for (int i = 0; i < 3; ++i) vector.push_back(shared);
  EXPECT_EQ(shared.use_count(), 4);
  vector = {};
  EXPECT_EQ(shared.use_count(), 1);
}

/// Counts its copies and fails when told to.
struct Fragile {
  Fragile() = default;
  Fragile(const Fragile& other) : value(other.value) {
    if (copies_left-- == 0) throw std::runtime_error("no more copies");
  }
  Fragile(Fragile&&) noexcept = default;
  Fragile& operator=(const Fragile& other) { return *this = Fragile(other); }
  Fragile& operator=(Fragile&&) noexcept = default;
  ~Fragile() = default;

  int value = 0;
  static inline int copies_left = 0;
};

TEST(InlineVectorMemoryTest, AnAssignmentThatFailsHalfWayChangesNothing) {
  Fragile::copies_left = 1000;
  InlineVector<Fragile, 2> target;
  InlineVector<Fragile, 2> source;
  for (int i = 0; i < 5; ++i) {
    Fragile fragile;
    fragile.value = i;
    target.push_back(fragile);
    fragile.value = 100 + i;
    source.push_back(fragile);
  }
  Fragile::copies_left = 4;
  EXPECT_THROW(target = source, std::runtime_error);
  ASSERT_EQ(target.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(target[i].value, static_cast<int>(i));
}

}  // namespace
}  // namespace crossdevice::detail
