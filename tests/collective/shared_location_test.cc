// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/shared_location.h"

#include <cstddef>

#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

#include "support/without_descriptors.h"

namespace crossdevice::detail {
namespace {

TEST(SharedLocationTest, MemoryThatWasMadeWithoutADescriptorIsNotHandedOutForEver) {
  if (!testing::can_do_without_descriptors()) GTEST_SKIP() << "a sanitizer needs descriptors";
  constexpr std::size_t kCount = std::size_t{1} << 20;
  Tensor tensor;
  {
    const testing::WithoutDescriptors limit;
    tensor = Tensor::empty(DType::FLOAT32, Shape{kCount}, "CPU:7");
  }
  EXPECT_FALSE(locate(tensor).has_value());
  EXPECT_THROW((void)require_location(tensor), ResourceExhaustedError);
  tensor.span<float>()[kCount - 1] = 1;  // still there
  tensor = {};
  const Tensor next = Tensor::empty(DType::FLOAT32, Shape{kCount}, "CPU:7");
  EXPECT_TRUE(locate(next).has_value());
}

}  // namespace
}  // namespace crossdevice::detail
