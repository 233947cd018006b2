// SPDX-License-Identifier: Apache-2.0
// GPUs are found, make what they have once, and say whom they reach.
#include "crossdevice/device/gpu_device.h"

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "crossdevice/core/error.h"
#include "crossdevice/device/gpu_platform.h"

#include "support/gpu_fixture.h"
#include "support/log_keeper.h"
#include "support/thrown.h"

namespace crossdevice::detail {
namespace {

using crossdevice::testing::emulated_cuda;
using crossdevice::testing::gpu;
using crossdevice::testing::LogKeeper;
using crossdevice::testing::make_cuda_stream;
using crossdevice::testing::thrown;
using ::testing::AllOf;
using ::testing::HasSubstr;

const bool kInstalled = (crossdevice::testing::install_emulated_gpus(5), true);

using GpuDeviceTest = crossdevice::testing::GpuTest;

TEST_F(GpuDeviceTest, EveryGpuOfTheProcessIsThere) {
  EXPECT_EQ(num_gpus(), 5);
  for (int i = 0; i < 5; ++i) {
    const Device device("GPU:" + std::to_string(i));
    EXPECT_TRUE(device.is_present());
    EXPECT_EQ(gpu(device).ordinal(), i);
    EXPECT_EQ(gpu(device).properties().compute_capability, 90);
    EXPECT_EQ(&gpu(device), &gpu(Device("/job:worker/task:1/GPU:" + std::to_string(i))));
  }
  EXPECT_EQ(thrown<ValueError>([] { (void)gpu("GPU:5"); }), "GPU:5: this host has 5 GPUs");
  EXPECT_EQ(thrown<ValueError>([] { (void)gpu("CPU:0"); }), "expected a GPU, got CPU:0");
}

TEST_F(GpuDeviceTest, ItsStreamIsMadeOnce) {
  std::vector<CudaStream> streams(4, nullptr);
  std::vector<std::thread> threads;
  threads.reserve(streams.size());
  for (CudaStream& stream : streams) {
    threads.emplace_back([&stream] { stream = gpu("GPU:1").own_stream(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const CudaStream stream : streams) EXPECT_EQ(stream, gpu("GPU:1").own_stream());
  EXPECT_NE(streams[0], nullptr);
  EXPECT_NE(streams[0], gpu("GPU:0").own_stream());
  EXPECT_LE(emulated_cuda().calls().count("cuda.stream_create"), 2u);
}

TEST_F(GpuDeviceTest, WhatCudaRefusesIsTriedAgain) {
  emulated_cuda().calls().inject({.function = "cuda.stream_create", .status = 2});
  EXPECT_THAT(thrown<ResourceExhaustedError>([] { (void)gpu("GPU:3").own_stream(); }),
              HasSubstr("cudaStreamCreateWithPriority"));
  EXPECT_NE(gpu("GPU:3").own_stream(), nullptr);
  emulated_cuda().calls().inject({.function = "cuda.create_pool", .status = 46});
  EXPECT_THAT(thrown<InternalError>([] { (void)gpu("GPU:3").memory_pool(); }),
              AllOf(HasSubstr("cudaMemPoolCreate"), HasSubstr("46")));
  EXPECT_NE(gpu("GPU:3").memory_pool(), nullptr);
}

TEST_F(GpuDeviceTest, ReachesThosePeersThatCudaLetsIt) {
  EXPECT_TRUE(gpu("GPU:0").reaches(gpu("GPU:0")));
  EXPECT_EQ(emulated_cuda().calls().count("cuda.enable_peer_access"), 0u);
  EXPECT_TRUE(gpu("GPU:0").reaches(gpu("GPU:1")));
  EXPECT_TRUE(gpu("GPU:0").reaches(gpu("GPU:1")));
  EXPECT_EQ(emulated_cuda().calls().count("cuda.enable_peer_access"), 1u);

  emulated_cuda().set_peers(0, 4, false);
  EXPECT_FALSE(gpu("GPU:0").reaches(gpu("GPU:4")));
  EXPECT_TRUE(gpu("GPU:4").reaches(gpu("GPU:0")));
  EXPECT_EQ(emulated_cuda().calls().count("cuda.enable_peer_access"), 2u);
}

TEST_F(GpuDeviceTest, TheProgramMayHaveEnabledAPeerBefore) {
  {
    const CurrentCudaDevice current(emulated_cuda(), 1);
    ASSERT_EQ(emulated_cuda().enable_peer_access(3), CudaStatus::SUCCESS);
  }
  EXPECT_TRUE(gpu("GPU:1").reaches(gpu("GPU:3")));
}

TEST_F(GpuDeviceTest, APeerThatCannotBeEnabledIsNotReachedAndSaidSoOnce) {
  const LogKeeper log;
  emulated_cuda().calls().inject({.function = "cuda.enable_peer_access", .status = 711});
  EXPECT_FALSE(gpu("GPU:3").reaches(gpu("GPU:1")));
  EXPECT_FALSE(gpu("GPU:3").reaches(gpu("GPU:1")));
  const std::string texts = log.texts();
  EXPECT_THAT(texts, AllOf(HasSubstr("device 3"), HasSubstr("device 1"), HasSubstr("711")));
  EXPECT_EQ(std::count(texts.begin(), texts.end(), '\n'), 1);
}

TEST_F(GpuDeviceTest, WhoReachesItReachesItsPool) {
  const LogKeeper log;
  const CudaPool pool = gpu("GPU:2").memory_pool();
  EXPECT_EQ(pool, gpu("GPU:2").memory_pool());
  EXPECT_EQ(emulated_cuda().calls().count("cuda.create_pool"), 1u);
  EXPECT_EQ(emulated_cuda().calls().count("cuda.set_pool_access"), 0u);
  EXPECT_TRUE(gpu("GPU:1").reaches(gpu("GPU:2")));
  EXPECT_EQ(emulated_cuda().calls().count("cuda.set_pool_access"), 1u);
  emulated_cuda().calls().inject({.function = "cuda.set_pool_access", .status = 101});
  EXPECT_FALSE(gpu("GPU:3").reaches(gpu("GPU:2")));
  EXPECT_THAT(log.texts(), AllOf(HasSubstr("device 3"), HasSubstr("cudaMemPoolSetAccess")));
}

TEST_F(GpuDeviceTest, WhileSomebodyCapturesAPeerIsRefusedForNowOnly) {
  const LogKeeper log;
  emulated_cuda().calls().inject({.function = "cuda.enable_peer_access", .status = 900});
  EXPECT_THAT(thrown<FailedPreconditionError>([] { (void)gpu("GPU:4").reaches(gpu("GPU:2")); }),
              HasSubstr("cudaDeviceEnablePeerAccess"));
  EXPECT_TRUE(gpu("GPU:4").reaches(gpu("GPU:2")));
  EXPECT_EQ(log.texts(), "");
}

TEST_F(GpuDeviceTest, ATensorFollowsItsStreamOrElseTheLibrarysOwn) {
  const Tensor plain = Tensor::empty(DType::FLOAT32, {3}, "GPU:1");
  EXPECT_EQ(gpu_stream_of(plain), gpu("GPU:1").own_stream());
  const CudaStream stream = make_cuda_stream(1);
  EXPECT_EQ(
      gpu_stream_of(Tensor::view(plain.data(), DType::FLOAT32, {3}, "GPU:1", from_cuda(stream))),
      stream);
  const CudaStream default_stream = nullptr;
  EXPECT_EQ(gpu_stream_of(Tensor::view(plain.data(), DType::FLOAT32, {3}, "GPU:1",
                                       from_cuda(default_stream))),
            nullptr);
  EXPECT_EQ(
      thrown<ValueError>([] { (void)gpu_stream_of(Tensor::zeros(DType::FLOAT32, {3}, "CPU:0")); }),
      "expected a GPU, got CPU:0");
}

}  // namespace
}  // namespace crossdevice::detail
