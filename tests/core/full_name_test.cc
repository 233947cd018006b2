// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/core/full_name.h"

#include <exception>
#include <new>
#include <optional>
#include <stdexcept>

#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {
namespace {

TEST(FullName, HasTheSizeAndTheTime) {
  const OperationRecord operation{
      .kind = "batch_reduce", .sequence = 12, .num_values = 161, .size_bytes = 102'236'160};
  EXPECT_EQ(with_full_name("batch_reduce #12 timed out: waiting for rank 1", operation, 5),
            "batch_reduce #12 (161 values, 97.5 MiB) timed out after 5 s: waiting for rank 1");
  EXPECT_EQ(with_full_name("batch_reduce #12 timed out: so", operation, std::nullopt),
            "batch_reduce #12 (161 values, 97.5 MiB) timed out: so");
  EXPECT_EQ(with_full_name("batch_reduce #12: rank 1 is gone", operation, 5),
            "batch_reduce #12 (161 values, 97.5 MiB): rank 1 is gone");
  for (const char* const other :
       {"", "batch_reduce #123 timed out: x", "reduce #12: x", "batch_reduce #12"}) {
    EXPECT_EQ(with_full_name(other, operation, 5), other);
  }
  EXPECT_EQ(with_full_name("batch_reduce #12 (1 value, 4 bytes) timed out: x", operation, 5),
            "batch_reduce #12 (1 value, 4 bytes) timed out: x");
}

TEST(FullName, OfNoValuesThereIsNoSize) {
  const OperationRecord barrier{.kind = "barrier", .sequence = 3};
  EXPECT_EQ(with_full_name("barrier #3 timed out: waiting for rank 1", barrier, 0.25),
            "barrier #3 timed out after 0.25 s: waiting for rank 1");
}

constexpr OperationRecord kOperation{
    .kind = "reduce", .sequence = 7, .num_values = 1, .size_bytes = 4};

TEST(ErrorOf, WhatComesFromBelowIsTheOperations) {
  for (const bool is_intact : {true, false}) {
    const auto below = std::make_exception_ptr(
        UnavailableError("reduce #7: rank 1 is gone",
                         {.operation = {}, .culprits = {{.rank = 1}}, .inputs_intact = is_intact}));
    for (const bool has_part_written : {true, false}) {
      try {
        std::rethrow_exception(
            error_of(below, kOperation, std::nullopt,
                     {.may_be_written = true, .has_part_written = has_part_written}));
      } catch (const UnavailableError& error) {
        EXPECT_STREQ(error.what(), "reduce #7 (1 value, 4 bytes): rank 1 is gone");
        EXPECT_EQ(error.operation().sequence, 7U);
        ASSERT_EQ(error.culprits().size(), 1U);
        EXPECT_EQ(error.culprits()[0].rank, 1);
        EXPECT_EQ(error.inputs_intact(), is_intact && !has_part_written);
      }
    }
  }
}

TEST(ErrorOf, WhatLacksMemorySaysSoAndVouchesForNoInputThatAnOutputLiesIn) {
  for (const bool may_be_written : {true, false}) {
    for (const bool has_part_written : {true, false}) {
      try {
        std::rethrow_exception(
            error_of(std::make_exception_ptr(std::bad_alloc()), kOperation, 5,
                     {.may_be_written = may_be_written, .has_part_written = has_part_written}));
      } catch (const ResourceExhaustedError& error) {
        EXPECT_STREQ(error.what(),
                     "reduce #7 (1 value, 4 bytes): this process has no memory for it");
        EXPECT_EQ(error.operation().kind, "reduce");
        EXPECT_TRUE(error.culprits().empty());
        EXPECT_EQ(error.inputs_intact(), !may_be_written && !has_part_written);
      }
    }
  }
}

TEST(ErrorOf, WhatIsNamedAlreadyOrNoErrorOfOursStays) {
  OperationRecord other = kOperation;
  other.sequence = 8;
  for (const std::exception_ptr& error :
       {std::make_exception_ptr(AbortedError("x", {.operation = other})),
        std::make_exception_ptr(std::runtime_error("y")), std::make_exception_ptr(ValueError("z")),
        std::make_exception_ptr(1)}) {
    EXPECT_EQ(error_of(error, kOperation, 5, {.may_be_written = true, .has_part_written = true}),
              error);
  }
}

}  // namespace
}  // namespace crossdevice::detail
