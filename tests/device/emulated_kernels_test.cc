// SPDX-License-Identifier: Apache-2.0
// The emulated launchers: the host's arithmetic, in stream order, over memory that the device reaches.
#include "support/emulated_kernels.h"

#include <chrono>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/device/gpu_platform.h"

#include "support/emulated_gpus.h"

namespace crossdevice::testing {
namespace {

using detail::CopyRange;
using detail::CudaStatus;
using detail::CudaStream;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr CudaStatus kOk = CudaStatus::SUCCESS;

class EmulatedKernelsTest : public ::testing::Test {
 protected:
  EmulatedKernelsTest() { EXPECT_EQ(cuda->stream_create(&stream), kOk); }

  template <class T>
  T* device_copy(const std::vector<T>& values, int device = 0) {
    T* const memory = static_cast<T*>(cuda->malloc_device(device, (values.size() + 1) * sizeof(T)));
    std::copy(values.begin(), values.end(), cuda->view(memory));
    return memory;
  }
  template <class T>
  std::vector<T> values(const T* memory, std::size_t count) {
    EXPECT_TRUE(cuda->synchronize());
    const T* const view = cuda->view(memory);
    return std::vector<T>(view, view + count);
  }

  std::shared_ptr<EmulatedCuda> cuda = std::make_shared<EmulatedCuda>(2, std::size_t{16} << 20);
  EmulatedKernels kernels{cuda};
  CudaStream stream = nullptr;
};

TEST_F(EmulatedKernelsTest, CopiesRangesInOneLaunch) {
  const float* const source = device_copy<float>({1, 2, 3, 4, 5});
  float* const destination = device_copy<float>({0, 0, 0, 0, 0});
  std::vector<CopyRange> ranges{{source, destination + 3, 2}, {source + 2, destination, 3}, {}};
  ASSERT_EQ(kernels.copy_ranges({ranges, DType::FLOAT32, DType::FLOAT32, 1, stream}), kOk);
  ranges.assign(3, {});  // copied into the launch
  EXPECT_THAT(values(destination, 5), ElementsAre(3, 4, 5, 1, 2));
  EXPECT_EQ(cuda->calls().count("kernels.copy_ranges"), 1U);
  EXPECT_THAT(cuda->violations(), IsEmpty());
}

TEST_F(EmulatedKernelsTest, DividesAndConvertsWithOneRounding) {
  const float* const source = device_copy<float>({3, 1e6F, -5, 2049});
  auto* const halves = device_copy<float16>(std::vector<float16>(4));
  const std::vector<CopyRange> narrow{{source, halves, 4}};
  ASSERT_EQ(kernels.copy_ranges({narrow, DType::FLOAT32, DType::FLOAT16, 2, stream}), kOk);
  EXPECT_THAT(values(halves, 4),
              ElementsAre(float16(1.5F), float16(INFINITY), float16(-2.5F), float16(1024.5F)));

  // Between 1 + 2^-8 and the next bfloat16 but one: by way of float32 it would be a tie, and go down.
  const double above_tie = 1.0 + std::ldexp(1.0, -8) + std::ldexp(1.0, -40);
  const double* const doubles = device_copy<double>({above_tie, -above_tie, 1e300});
  auto* const small = device_copy<bfloat16>(std::vector<bfloat16>(3));
  const std::vector<CopyRange> from_double{{doubles, small, 3}};
  ASSERT_EQ(kernels.copy_ranges({from_double, DType::FLOAT64, DType::BFLOAT16, 1, stream}), kOk);
  EXPECT_THAT(values(small, 3),
              ElementsAre(bfloat16(1.0F + std::ldexp(1.0F, -7)),
                          bfloat16(-1.0F - std::ldexp(1.0F, -7)), bfloat16(INFINITY)));
}

TEST_F(EmulatedKernelsTest, DividesWhereItLies) {
  auto* const numbers = device_copy<std::complex<float>>({{4, 2}, {-8, 1}});
  const std::vector<CopyRange> ranges{{numbers, numbers, 2}};
  ASSERT_EQ(kernels.copy_ranges({ranges, DType::COMPLEX64, DType::COMPLEX64, 4, stream}), kOk);
  EXPECT_THAT(values(numbers, 2),
              ElementsAre(std::complex<float>(1, 0.5F), std::complex<float>(-2, 0.25F)));
}

TEST_F(EmulatedKernelsTest, ReducesOverPeersInOrder) {
  const std::vector<const void*> inputs{device_copy<std::int32_t>({1, 2, 3}),
                                        device_copy<std::int32_t>({10, 20, 30}, 1)};
  auto* const mean = device_copy<float>({0, 0, 0});
  const std::vector<void*> outputs{mean};
  ASSERT_EQ(cuda->enable_peer_access(1), kOk);
  ASSERT_EQ(kernels.reduce({ReduceOp::SUM, DType::INT32, inputs,
                            std::vector<void*>{const_cast<void*>(inputs[0])}, 0, 3, stream}),
            kOk);
  EXPECT_THAT(values(static_cast<const std::int32_t*>(inputs[0]), 3), ElementsAre(11, 22, 33));
  auto* const wide = device_copy<double>({0, 0, 0});
  ASSERT_EQ(kernels.reduce(
                {ReduceOp::MEAN, DType::INT32, inputs, std::vector<void*>{wide}, 0, 3, stream}),
            kOk);
  EXPECT_THAT(values(wide, 3), ElementsAre(10.5, 21, 31.5));
  EXPECT_THAT(cuda->violations(), IsEmpty());
}

TEST_F(EmulatedKernelsTest, ReducesManyTensors) {
  auto* const first = device_copy<float>({1, 2, 3});
  auto* const other_first = device_copy<float>({10, 20, 30}, 1);
  auto* const second = device_copy<float>({4});
  auto* const other_second = device_copy<float>({40}, 1);
  auto* const sum = device_copy<float>({0});
  const std::vector<void*> buffers{first, other_first, first, second, other_second, sum};
  const std::vector<std::size_t> counts{3, 1};
  ASSERT_EQ(cuda->enable_peer_access(1), kOk);
  bool has_launched = false;
  ASSERT_EQ(kernels.reduce_many({ReduceOp::SUM, DType::FLOAT32, 2, 1, buffers, counts, 0, stream},
                                has_launched),
            kOk);
  EXPECT_TRUE(has_launched);
  EXPECT_THAT(values(first, 3), ElementsAre(11, 22, 33));
  EXPECT_THAT(values(sum, 1), ElementsAre(44));
  EXPECT_THAT(cuda->violations(), IsEmpty());
  EXPECT_EQ(kernels.reduce_many({ReduceOp::SUM, DType::FLOAT32, 2, 2, buffers, counts, 0, stream},
                                has_launched),
            CudaStatus::INVALID_VALUE);
  EXPECT_FALSE(has_launched);
  EXPECT_EQ(cuda->violations().size(), 1U);
}

TEST_F(EmulatedKernelsTest, APeerWithoutAccessIsFound) {
  const std::vector<const void*> inputs{device_copy<float>({1}), device_copy<float>({2}, 1)};
  const std::vector<void*> outputs{device_copy<float>({0})};
  EXPECT_EQ(kernels.reduce({ReduceOp::SUM, DType::FLOAT32, inputs, outputs, 0, 1, stream}), kOk);
  ASSERT_TRUE(cuda->synchronize());
  EXPECT_THAT(cuda->violations(), ElementsAre(HasSubstr("without access")));
  EXPECT_EQ(cuda->stream_query(stream), kIllegalAddress);
}

TEST_F(EmulatedKernelsTest, OrdinaryMemoryIsNotReached) {
  const std::vector<float> host{1};
  const std::vector<CopyRange> ranges{{host.data(), device_copy<float>({0}), 1}};
  EXPECT_EQ(kernels.copy_ranges({ranges, DType::FLOAT32, DType::FLOAT32, 1, stream}), kOk);
  ASSERT_TRUE(cuda->synchronize());
  EXPECT_THAT(cuda->violations(), ElementsAre(HasSubstr("ordinary host memory")));
}

TEST_F(EmulatedKernelsTest, AlignmentIsChecked) {
  auto* const bytes = reinterpret_cast<std::byte*>(device_copy<float>({1, 2, 3}));
  const std::vector<CopyRange> ranges{{bytes + 2, bytes + 8, 1}};
  EXPECT_EQ(kernels.copy_ranges({ranges, DType::FLOAT32, DType::FLOAT32, 1, stream}),
            kIllegalAddress);
  EXPECT_THAT(cuda->violations(), ElementsAre(HasSubstr("is not aligned")));
}

TEST_F(EmulatedKernelsTest, WhatTheTableForbidsIsRefused) {
  float* const memory = device_copy<float>({1});
  const std::vector<CopyRange> ranges{{memory, memory, 1}};
  const std::vector<const void*> inputs{memory};
  const std::vector<void*> outputs{memory};
  EXPECT_EQ(kernels.copy_ranges({ranges, DType::FLOAT32, DType::FLOAT16, 1, stream}),
            CudaStatus::INVALID_VALUE);
  EXPECT_EQ(kernels.copy_ranges({ranges, DType::INT32, DType::FLOAT32, 1, stream}),
            CudaStatus::INVALID_VALUE);
  EXPECT_EQ(kernels.copy_ranges({ranges, DType::INT32, DType::INT32, 2, stream}),
            CudaStatus::INVALID_VALUE);
  EXPECT_EQ(kernels.reduce({ReduceOp::SUM, DType::BOOL, inputs, outputs, 0, 1, stream}),
            CudaStatus::INVALID_VALUE);
  EXPECT_EQ(kernels.reduce({ReduceOp::SUM, DType::FLOAT32, {}, outputs, 0, 1, stream}),
            CudaStatus::INVALID_VALUE);
  EXPECT_EQ(cuda->violations().size(), 5U);
}

TEST_F(EmulatedKernelsTest, NothingToDo) {
  EXPECT_EQ(kernels.copy_ranges({{}, DType::FLOAT32, DType::FLOAT32, 1, stream}), kOk);
  const std::vector<const void*> inputs{nullptr};
  const std::vector<void*> outputs{nullptr};
  EXPECT_EQ(kernels.reduce({ReduceOp::SUM, DType::FLOAT32, inputs, outputs, 0, 0, stream}), kOk);
  EXPECT_TRUE(cuda->synchronize());
  EXPECT_THAT(cuda->violations(), IsEmpty());
}

// The process's own: what the library would get. Its threads end with the process although a stream is blocked.
TEST(EmulatedGpusTest, AreGivenToTheLibrary) {
  install_emulated_gpus(3);
  const detail::GpuPlatform& platform = detail::gpu_platform();
  ASSERT_TRUE(platform.has_gpus());
  int count = 0;
  EXPECT_EQ(platform.cuda->get_device_count(&count), kOk);
  EXPECT_EQ(count, 3);
  EXPECT_EQ(platform.cuda.get(), &emulated_cuda());
  EXPECT_EQ(platform.kernels.get(), &emulated_kernels());
  EXPECT_THROW(install_emulated_gpus(), std::logic_error);
  CudaStream stream = nullptr;
  ASSERT_EQ(platform.cuda->stream_create(&stream), kOk);
  emulated_cuda().block_stream(stream);
}

}  // namespace
}  // namespace crossdevice::testing
