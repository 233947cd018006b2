// SPDX-License-Identifier: Apache-2.0
// Reduce ops read back from their names, and the dtype x op table says what the documentation says.
#include "crossdevice/core/reduce_op.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

using ::testing::StrEq;
using ::testing::ThrowsMessage;

TEST(ReduceOpTest, EveryOpIsListedOnceAndReadsBackFromItsName) {
  const std::set<ReduceOp> all(std::begin(kAllReduceOps), std::end(kAllReduceOps));
  EXPECT_EQ(all, (std::set<ReduceOp>{ReduceOp::SUM, ReduceOp::MEAN, ReduceOp::MIN, ReduceOp::MAX,
                                     ReduceOp::PROD}));
  EXPECT_EQ(std::size(kAllReduceOps), all.size());
  for (const ReduceOp op : kAllReduceOps) EXPECT_EQ(reduce_op_from_string(to_string(op)), op);
}

TEST(ReduceOpTest, NamesAreTensorFlows) {
  EXPECT_EQ(to_string(ReduceOp::SUM), "SUM");
  EXPECT_EQ(to_string(ReduceOp::MEAN), "MEAN");
  EXPECT_EQ(to_string(ReduceOp::MIN), "MIN");
  EXPECT_EQ(to_string(ReduceOp::MAX), "MAX");
  EXPECT_EQ(to_string(ReduceOp::PROD), "PROD");
}

TEST(ReduceOpTest, NamesAreTakenInAnyCase) {
  EXPECT_EQ(reduce_op_from_string("sum"), ReduceOp::SUM);
  EXPECT_EQ(reduce_op_from_string("Mean"), ReduceOp::MEAN);
  EXPECT_EQ(reduce_op_from_string("pROD"), ReduceOp::PROD);
}

TEST(ReduceOpTest, OtherNamesThrowAndAreNamed) {
  EXPECT_THAT([] { (void)reduce_op_from_string("AVG"); },
              ThrowsMessage<ValueError>(
                  StrEq("reduce op: expected SUM, MEAN, MIN, MAX or PROD, got 'AVG'")));
  EXPECT_THROW((void)reduce_op_from_string(""), ValueError);
  EXPECT_THROW((void)reduce_op_from_string("SU"), ValueError);
  EXPECT_THROW((void)reduce_op_from_string("SUM "), ValueError);
}

TEST(ReduceOpTest, TheTableLeavesOutBoolSumsAndMeansAndComplexOrder) {
  using Pair = std::pair<ReduceOp, DType>;
  const std::set<Pair> excluded = {
      {ReduceOp::SUM, DType::BOOL},       {ReduceOp::MEAN, DType::BOOL},
      {ReduceOp::MIN, DType::COMPLEX64},  {ReduceOp::MAX, DType::COMPLEX64},
      {ReduceOp::MIN, DType::COMPLEX128}, {ReduceOp::MAX, DType::COMPLEX128}};
  for (const ReduceOp op : kAllReduceOps) {
    for (const DType dtype : kAllDTypes) {
      EXPECT_EQ(is_supported(op, dtype), !excluded.contains({op, dtype}))
          << to_string(op) << " of " << to_string(dtype);
    }
  }
}

TEST(ReduceOpTest, OnlyMeansChangeTheDType) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllReduceOps) {
      const DType expected = op == ReduceOp::MEAN ? mean_dtype(dtype) : dtype;
      EXPECT_EQ(result_dtype(op, dtype), expected) << to_string(op) << " of " << to_string(dtype);
    }
  }
  EXPECT_EQ(result_dtype(ReduceOp::MEAN, DType::INT32), DType::FLOAT64);
  EXPECT_EQ(result_dtype(ReduceOp::MEAN, DType::UINT8), DType::FLOAT32);
}

}  // namespace
}  // namespace crossdevice
