// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/core/full_name.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace crossdevice::detail
