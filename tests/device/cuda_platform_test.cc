// SPDX-License-Identifier: Apache-2.0
// The real tables as this machine and this build have them: both, or a reason; nothing crashes, hangs or is printed where there is no driver.
#include "device/detail/cuda_platform.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "crossdevice/device/device.h"
#include "crossdevice/device/gpu_platform.h"

namespace crossdevice::detail {
namespace {

#if defined(CROSSDEVICE_WITH_CUDA)
constexpr bool kWithCuda = true;
#else
constexpr bool kWithCuda = false;
#endif

/// The driver's own device file: without it no GPU can be used.
bool has_driver() { return std::filesystem::exists("/dev/nvidiactl"); }

TEST(CudaPlatformTest, HasBothTablesOrAReason) {
  const GpuPlatform platform = make_cuda_platform();
  EXPECT_EQ(platform.cuda != nullptr, platform.kernels != nullptr);
  EXPECT_EQ(platform.has_gpus(), platform.reason_against.empty());
}

TEST(CudaPlatformTest, ABuildWithoutCudaSaysSo) {
  if (kWithCuda) GTEST_SKIP() << "this build has CUDA";
  EXPECT_EQ(make_cuda_platform().reason_against, "this library was built without CUDA");
}

TEST(CudaPlatformTest, WithoutADriverTheReasonNamesItAndThereAreNoGpus) {
  if (!kWithCuda) GTEST_SKIP() << "this build has no CUDA";
  if (has_driver()) GTEST_SKIP() << "this machine has an NVIDIA driver";
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const std::string reason = make_cuda_platform().reason_against;
  const std::string known = gpu_platform().reason_against;
  const int num = num_gpus();
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  // libcuda.so.1 may be there without the kernel's half, as in many containers: then it finds no device.
  EXPECT_TRUE(reason == "no NVIDIA driver" || reason.starts_with("no NVIDIA GPU")) << reason;
  EXPECT_EQ(known, reason);
  EXPECT_EQ(num, 0);
}

TEST(CudaPlatformTest, AsksAgainWithTheSameAnswer) {
  EXPECT_EQ(make_cuda_platform().reason_against, make_cuda_platform().reason_against);
}

}  // namespace
}  // namespace crossdevice::detail
