// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/batch_size.h"

#include <vector>

#include <gtest/gtest.h>

namespace crossdevice::detail {
namespace {

using Values = std::vector<CollectiveValue>;

TEST(BatchSizeTest, BytesAreOneReplicasAndTensorsAreAll) {
  const std::vector<Tensor> inputs(2, Tensor::zeros(DType::FLOAT32, {20}, "CPU:0"));
  const Values values{{inputs, inputs}, {inputs, {}}};
  const BatchSize size = require_batch({}, values);
  EXPECT_EQ(size.size_bytes, 160U);
  EXPECT_EQ(size.inline_bytes, 4 * 128U);  // each aligned to 64
  EXPECT_EQ(size.num_tensors, 6U);
}

TEST(BatchSizeTest, WhatMustNotDifferMakesAnotherFingerprint) {
  const Tensor floats = Tensor::zeros(DType::FLOAT32, {20}, "CPU:0");
  const Tensor ints = Tensor::zeros(DType::INT32, {20}, "CPU:0");
  const Tensor fewer = Tensor::zeros(DType::FLOAT32, {19}, "CPU:0");
  const auto of = [](const Tensor& tensor, const CollectiveRequest& request = {}) {
    const std::span<const Tensor> one(&tensor, 1);
    return require_batch(request, Values{{one, one}}).fingerprint;
  };
  EXPECT_EQ(of(floats), of(Tensor::zeros(DType::FLOAT32, {4, 5}, "CPU:0")));
  EXPECT_NE(of(floats), of(ints));
  EXPECT_NE(of(floats), of(fewer));
  EXPECT_NE(of(floats), of(floats, {.deterministic = true}));
  EXPECT_NE(of(floats, {.deterministic = true}),
            of(floats, {.deterministic = true, .grouping_independent = true}));
  EXPECT_NE(of(floats), of(floats, {.fingerprint = 1}));
}

TEST(BatchSizeTest, InPlaceIsWhereAnOutputIsAnInputOfItsValue) {
  const std::vector<Tensor> a{Tensor::zeros(DType::FLOAT32, {2}, "CPU:0"),
                              Tensor::zeros(DType::FLOAT32, {2}, "CPU:0")};
  const std::vector<Tensor> b{Tensor::zeros(DType::FLOAT32, {2}, "CPU:0"), a[1]};
  EXPECT_FALSE(is_in_place({}));
  EXPECT_FALSE(is_in_place(Values{{a, {}}}));
  EXPECT_FALSE(is_in_place(Values{{a, std::span(b).first(1)}}));
  EXPECT_TRUE(is_in_place(Values{{a, b}}));
  EXPECT_TRUE(is_in_place(Values{{a, {}}, {a, std::span(a).first(1)}}));
}

}  // namespace
}  // namespace crossdevice::detail
