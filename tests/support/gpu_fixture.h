// SPDX-License-Identifier: Apache-2.0
/// What tests on emulated GPUs share: nothing forbidden was done, the current device stayed as it was, nothing is left waiting.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/tensor.h"

#include "support/emulated_gpus.h"

namespace crossdevice::testing {

/// The program calls install_emulated_gpus() in a static initialiser.
class EmulatedGpuTest : public ::testing::Test {
 protected:
  void TearDown() override {
    emulated_cuda().calls().clear_faults();
    emulated_cuda().release_everything();
    EXPECT_TRUE(emulated_cuda().synchronize());
    EXPECT_THAT(emulated_cuda().violations(), ::testing::IsEmpty());
    emulated_cuda().clear_violations();
  }
};

/// The same with a current device of the program's own.
class GpuTest : public EmulatedGpuTest {
 protected:
  /// The program's own current device; the tests use others.
  static constexpr int kCurrent = 2;

  void SetUp() override {
    ASSERT_EQ(emulated_cuda().set_device(kCurrent), detail::CudaStatus::SUCCESS);
    emulated_cuda().calls().clear();
  }
  void TearDown() override {
    EXPECT_EQ(emulated_cuda().current_device(), kCurrent);
    EmulatedGpuTest::TearDown();
  }
};

/// The elements of a tensor on a GPU, when all that is enqueued is done.
template <class T = unsigned char>
[[nodiscard]] std::vector<T> elements_on_gpu(const Tensor& tensor) {
  EXPECT_TRUE(emulated_cuda().synchronize());
  std::vector<T> elements(tensor.size_bytes() / sizeof(T));
  if (!elements.empty()) {
    std::memcpy(elements.data(), emulated_cuda().view(tensor.data()), tensor.size_bytes());
  }
  return elements;
}

/// A stream of the program's own on a GPU.
[[nodiscard]] inline detail::CudaStream make_cuda_stream(int device) {
  EmulatedCuda& cuda = emulated_cuda();
  const int before = cuda.current_device();
  detail::CudaStream stream = nullptr;
  EXPECT_EQ(cuda.set_device(device), detail::CudaStatus::SUCCESS);
  EXPECT_EQ(cuda.stream_create(&stream), detail::CudaStatus::SUCCESS);
  EXPECT_EQ(cuda.set_device(before), detail::CudaStatus::SUCCESS);
  return stream;
}

[[nodiscard]] inline detail::GpuDevice& gpu(const Device& device) {
  return detail::GpuDevice::of(device);
}

}  // namespace crossdevice::testing
