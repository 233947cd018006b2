// SPDX-License-Identifier: Apache-2.0
// Shapes count their elements without overflow, refuse what is no shape, and print as tuples.
#include "crossdevice/core/shape.h"

#include <limits>
#include <sstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

#include "support/allocation_counter.h"

namespace crossdevice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StrEq;
using ::testing::ThrowsMessage;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

std::string text_of(const auto& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

TEST(ShapeTest, ADefaultShapeIsAScalarWithOneElement) {
  const Shape scalar;
  EXPECT_EQ(scalar.rank(), 0u);
  EXPECT_THAT(scalar.dims(), IsEmpty());
  EXPECT_EQ(scalar.num_elements(), 1);
  EXPECT_EQ(scalar.to_string(), "()");
  EXPECT_EQ(scalar, Shape{});
}

TEST(ShapeTest, HoldsItsDimensionsAndTheirProduct) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.rank(), 3u);
  EXPECT_THAT(shape.dims(), ElementsAre(2, 3, 4));
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[2], 4);
  EXPECT_EQ(shape.num_elements(), 24);
}

TEST(ShapeTest, TakesRuntimeSizesOfAnyIntegerType) {
  const std::size_t n = 7;
  const int m = 2;
  const Shape shape = {n, m, std::uint8_t{3}, 1LL << 33};
  EXPECT_THAT(shape.dims(), ElementsAre(7, 2, 3, 1LL << 33));
}

TEST(ShapeTest, TakesASpanOfDimensions) {
  const std::vector<std::int64_t> dims = {1, 2, 3, 4, 5, 6, 7, 8};
  const Shape shape{dims};
  EXPECT_THAT(shape.dims(), ::testing::ElementsAreArray(dims));
  EXPECT_EQ(shape.num_elements(), 40320);
}

TEST(ShapeTest, ADimensionOfZeroMeansNoElements) {
  EXPECT_EQ((Shape{0}).num_elements(), 0);
  EXPECT_EQ((Shape{3, 0, 5}).num_elements(), 0);
}

TEST(ShapeTest, PrintsAsATuple) {
  EXPECT_EQ(text_of(Shape{1000}), "(1000)");
  EXPECT_EQ(text_of(Shape{3, 4}), "(3, 4)");
  EXPECT_EQ(text_of(Shape{}), "()");
}

TEST(ShapeTest, EqualMeansTheSameDimensionsInTheSameOrder) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{6}), (Shape{2, 3}));
  EXPECT_NE((Shape{1}), (Shape{}));
  EXPECT_NE((Shape{0, 2}), (Shape{0, 3}));
}

TEST(ShapeTest, NegativeDimensionsThrowAndAreNamed) {
  EXPECT_THAT(
      [] {
        Shape({3, -1});
      },
      ThrowsMessage<ValueError>(
          StrEq("shape (3, -1): expected dimensions of at least 0, got -1 in position 1")));
  const std::vector<std::int64_t> dims = {std::numeric_limits<std::int64_t>::min()};
  EXPECT_THROW(Shape{dims}, ValueError);
}

TEST(ShapeTest, NumbersOfElementsUpToTheLargestIntegerFit) {
  EXPECT_EQ((Shape{kMax}).num_elements(), kMax);
  EXPECT_EQ((Shape{1, kMax, 1}).num_elements(), kMax);
  EXPECT_EQ((Shape{1LL << 31, 1LL << 31}).num_elements(), 1LL << 62);
}

TEST(ShapeTest, ProductsThatOverflowThrowAndTheShapeIsNamed) {
  EXPECT_THAT(
      [] {
        Shape({1LL << 32, 1LL << 31});
      },
      ThrowsMessage<ValueError>(
          StrEq("shape (4294967296, 2147483648): expected a number of elements that fits "
                "in a signed 64-bit integer, got a larger one")));
  EXPECT_THROW(Shape({kMax, 2}), ValueError);
  // Twice 2^32 of them is 0 modulo 2^64: a product that only looks at the low bits would accept it.
  EXPECT_THROW(Shape({1LL << 32, 1LL << 32}), ValueError);
}

TEST(ShapeTest, AZeroDoesNotHideStridesThatOverflow) {
  EXPECT_THROW(Shape({0, kMax, 2}), ValueError);
  EXPECT_THROW(Shape({kMax, 0, 2}), ValueError);
  EXPECT_THROW(Shape({kMax, 2, 0}), ValueError);
}

TEST(ShapeTest, SizesBeyondInt64Throw) {
  EXPECT_THROW(Shape({std::numeric_limits<std::size_t>::max()}), ValueError);
}

TEST(ShapeTest, AMovedFromShapeIsAScalar) {
  for (const Shape& original : {Shape{2, 3}, Shape{1, 2, 3, 4, 5, 6, 7, 8}}) {
    Shape source = original;
    Shape taken = std::move(source);
    EXPECT_EQ(taken, original);
    EXPECT_EQ(taken.num_elements(), original.num_elements());
    EXPECT_EQ(source, Shape{});  // NOLINT(bugprone-use-after-move): this is what is tested
    EXPECT_EQ(source.num_elements(), 1);
    source = std::move(taken);
    EXPECT_EQ(source, original);
    EXPECT_EQ(source.num_elements(), original.num_elements());
    EXPECT_EQ(taken.num_elements(), 1);  // NOLINT(bugprone-use-after-move)
  }
}

TEST(ShapeTest, UpToSixDimensionsAllocateNothing) {
  if (!testing::can_count_allocations()) GTEST_SKIP() << "a sanitizer has replaced the heap";
  const std::size_t before = testing::num_allocations_of_this_thread();
  const Shape shape{1, 2, 3, 4, 5, 6};
  Shape copy = shape;
  const Shape moved = std::move(copy);
  EXPECT_EQ(testing::num_allocations_of_this_thread(), before);
  EXPECT_EQ(moved, shape);
}

struct TakesMaybeShape {
  MaybeShape dense_shape{};
};

TEST(MaybeShapeTest, IsNothingByDefaultAndByName) {
  EXPECT_FALSE(MaybeShape().has_value());
  EXPECT_FALSE(MaybeShape(std::nullopt).has_value());
  EXPECT_FALSE(TakesMaybeShape{}.dense_shape);
  EXPECT_EQ(MaybeShape(), MaybeShape(std::nullopt));
}

TEST(MaybeShapeTest, TakesDimensionsInBraces) {
  const TakesMaybeShape sparse{.dense_shape = {50000, 128}};
  ASSERT_TRUE(sparse.dense_shape);
  EXPECT_EQ(*sparse.dense_shape, (Shape{50000, 128}));
  EXPECT_EQ(sparse.dense_shape->num_elements(), 6'400'000);
  const std::size_t rows = 3;
  EXPECT_EQ(*TakesMaybeShape{.dense_shape = {rows}}.dense_shape, Shape{3});
}

TEST(MaybeShapeTest, TakesAShapeAndAScalarIsNotNothing) {
  const Shape shape{2, 2};
  EXPECT_EQ(*MaybeShape(shape), shape);
  EXPECT_TRUE(MaybeShape(Shape{}).has_value());
  EXPECT_NE(MaybeShape(Shape{}), MaybeShape());
}

TEST(MaybeShapeTest, RefusesWhatShapeRefuses) {
  EXPECT_THROW((void)(TakesMaybeShape{.dense_shape = {2, -2}}), ValueError);
}

}  // namespace
}  // namespace crossdevice
