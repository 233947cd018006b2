// SPDX-License-Identifier: Apache-2.0
/// A copy moves every element and nothing else, and refuses what would not be
/// one.
#include "crossdevice/device/copy.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

#include "support/thrown.h"

namespace crossdevice {
namespace {

using crossdevice::testing::thrown;
using ::testing::HasSubstr;

unsigned char pattern(std::size_t i) { return static_cast<unsigned char>(i * 31 + i / 251 + 1); }

TEST(CopyTest, EveryByteArrivesAndNothingElseChanges) {
  constexpr std::size_t kGuard = 64;
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  for (const std::size_t size_bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{4096}, kMiB - 1, kMiB,
        kMiB + 1, 4 * kMiB - 1, 4 * kMiB, 4 * kMiB + 12345, 9 * kMiB + 7}) {
    // Starts off every alignment that could help.
    std::vector<unsigned char> from(size_bytes + 2 * kGuard, 0xee);
    std::vector<unsigned char> to(size_bytes + 2 * kGuard, 0xdd);
    for (std::size_t i = 0; i < size_bytes; ++i) from[kGuard + 1 + i] = pattern(i);
    const Tensor source = Tensor::view(from.data() + kGuard + 1, {size_bytes}, "CPU:0");
    const Tensor destination = Tensor::view(to.data() + kGuard + 3, {size_bytes}, "CPU:1");

    copy(destination, source);

    for (std::size_t i = 0; i < to.size(); ++i) {
      const bool inside = i >= kGuard + 3 && i < kGuard + 3 + size_bytes;
      ASSERT_EQ(to[i], inside ? pattern(i - kGuard - 3) : 0xdd)
          << "at " << i << " of " << size_bytes;
    }
    for (std::size_t i = 0; i < size_bytes; ++i) ASSERT_EQ(from[kGuard + 1 + i], pattern(i));
  }
}

TEST(CopyTest, EveryDTypeIsCopiedBitByBit) {
  for (const DType dtype : kAllDTypes) {
    const Tensor source = Tensor::empty(dtype, {3, 7}, "CPU:0");
    const Tensor destination = Tensor::empty(dtype, {3, 7}, "CPU:0");
    auto* from = static_cast<unsigned char*>(source.data());
    for (std::size_t i = 0; i < source.size_bytes(); ++i) from[i] = pattern(i);
    std::memset(destination.data(), 0, destination.size_bytes());
    copy(destination, source.as_read_only());
    EXPECT_EQ(std::memcmp(destination.data(), source.data(), source.size_bytes()), 0);
  }
}

TEST(CopyTest, ACopyOntoItselfDoesNothing) {
  const Tensor tensor = Tensor::zeros(DType::INT32, {5}, "CPU:0");
  tensor.span<int>()[4] = 3;
  copy(tensor, tensor);
  copy(tensor, tensor.as_read_only());
  EXPECT_EQ(tensor.span<int>()[4], 3);
}

TEST(CopyTest, BadCopiesAreRefusedBeforeAnythingIsWritten) {
  std::vector<float> elements(10, 1.0F);
  const Tensor source = Tensor::view(std::span(elements).first(5), "CPU:0");
  const Tensor target = Tensor::zeros(DType::FLOAT32, {5}, "CPU:1");
  EXPECT_THAT(
      thrown<ValueError>([&] { copy(Tensor::view(elements.data() + 3, {5}, "CPU:1"), source); }),
      HasSubstr("overlap in part"));
  EXPECT_THAT(thrown<ValueError>([&] { copy(target.as_read_only(), source); }),
              AllOf(HasSubstr("destination"), HasSubstr("read-only")));
  EXPECT_THAT(thrown<ValueError>([&] {
                copy(target.reshape({5, 1}), source);
              }),
              AllOf(HasSubstr("float32 (5, 1) on CPU:1"), HasSubstr("float32 (5) on CPU:0")));
  EXPECT_THAT(thrown<ValueError>([&] { copy(Tensor::zeros(DType::INT32, {5}, "CPU:0"), source); }),
              AllOf(HasSubstr("int32"), HasSubstr("float32")));
  EXPECT_THAT(thrown<ValueError>([&] { copy(Tensor(), source); }),
              HasSubstr("destination is no tensor"));
  EXPECT_THAT(thrown<ValueError>([&] { copy(target, Tensor()); }),
              HasSubstr("source is no tensor"));
  for (const float element : elements) EXPECT_EQ(element, 1.0F);
  for (const float element : target.span<float>()) EXPECT_EQ(element, 0.0F);
}

/// Writes first + i, then ends an operation.
void write_and_finish(const Tensor& tensor, int first) {
  int next = first;
  for (int& element : std::span(static_cast<int*>(tensor.data()), tensor.num_elements())) {
    element = next++;
  }
  tensor.readiness().remove();
}

TEST(CopyTest, ACopyWaitsForOperationsOnEitherTensor) {
  // Large enough that a copy which did not wait would come before the last element.
  const Tensor source = Tensor::zeros(DType::INT32, {1 << 18}, "CPU:0");
  const Tensor destination = Tensor::zeros(DType::INT32, {1 << 18}, "CPU:1");
  for (int round = 1; round <= 10; ++round) {
    for (const Tensor& busy : {source, destination}) {
      source.readiness().add();
      write_and_finish(source, -round);
      busy.readiness().add();
      std::thread operation([&busy, round] { write_and_finish(busy, round); });
      copy(destination, source);
      operation.join();
      int next = busy.is_same(source) ? round : -round;
      for (const int element : destination.span<int>()) ASSERT_EQ(element, next++);
    }
  }
}

TEST(CopyToDeviceTest, TheResultIsFreshAlsoOnTheSameDevice) {
  std::vector<int> elements{1, 2, 3, 4, 5, 6};
  const Tensor source = Tensor::view(std::span<const int>(elements), {2, 3}, "CPU:0");
  for (const char* name : {"CPU:0", "CPU:1"}) {
    const Tensor result = copy_to_device(source, name);
    EXPECT_EQ(result.device(), Device(name));
    EXPECT_EQ(result.shape(), Shape({2, 3}));
    EXPECT_FALSE(result.is_read_only());
    EXPECT_NE(result.data(), source.data());
    for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(result.span<int>()[i], elements[i]);
  }
}

TEST(CopyToDeviceTest, AbsentDevicesAndNoTensorAreRefused) {
  const Tensor source = Tensor::zeros(DType::FLOAT32, {2}, "CPU:0");
  EXPECT_THAT(thrown<ValueError>([&] { (void)copy_to_device(source, "GPU:0"); }),
              HasSubstr("GPU:0"));
  EXPECT_THAT(thrown<ValueError>([&] { (void)copy_to_device(Tensor(), "CPU:0"); }),
              HasSubstr("no tensor"));
}

}  // namespace
}  // namespace crossdevice
