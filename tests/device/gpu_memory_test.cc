// SPDX-License-Identifier: Apache-2.0
// Tensors on GPUs: where their memory comes from, in whose order it comes and goes, and which memory may be a view.
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "crossdevice/core/error.h"
#include "crossdevice/device/memory_pool.h"
#include "crossdevice/device/tensor.h"

#include "support/allocation_counter.h"
#include "support/gpu_fixture.h"
#include "support/log_keeper.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using testing::elements_on_gpu;
using testing::emulated_cuda;
using testing::gpu;
using ::testing::HasSubstr;
using testing::make_cuda_stream;
using testing::thrown;

const bool kInstalled = (testing::install_emulated_gpus(3), true);

using GpuMemoryPoolTest = testing::GpuTest;
using GpuTensorTest = testing::GpuTest;

TEST_F(GpuMemoryPoolTest, CountsWhatItHandsOut) {
  MemoryPool& pool = MemoryPool::of("GPU:0");
  EXPECT_EQ(&pool, &MemoryPool::of("GPU:0"));
  EXPECT_NE(&pool, &MemoryPool::of("GPU:1"));
  const MemoryPoolStatistics before = pool.statistics();
  const std::vector<std::pair<std::size_t, std::size_t>> sizes = {
      {0, 256}, {1, 256}, {256, 256}, {257, 512}, {1009, 1024}, {5u << 20, 5u << 20}};
  std::vector<void*> blocks;
  std::size_t sum = 0;
  for (const auto& [asked, counted] : sizes) {
    blocks.push_back(pool.allocate(asked));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back()) % 256, 0u);
    sum += counted;
    EXPECT_EQ(pool.statistics().bytes_in_use - before.bytes_in_use, sum);
  }
  EXPECT_EQ(pool.statistics().num_allocations - before.num_allocations, sizes.size());
  EXPECT_GE(pool.statistics().bytes_reserved, sum);
  EXPECT_FALSE(pool.locate(blocks[0]).has_value());
  for (std::size_t i = 0; i < blocks.size(); ++i) pool.deallocate(blocks[i], sizes[i].first);
  EXPECT_EQ(pool.statistics().bytes_in_use, before.bytes_in_use);
  EXPECT_GE(pool.statistics().peak_bytes_in_use, sum);
  pool.reset_peak();
  EXPECT_EQ(pool.statistics().peak_bytes_in_use, before.bytes_in_use);
}

TEST_F(GpuMemoryPoolTest, KeepsWhatIsGivenBackUntilItIsToBeReleased) {
  MemoryPool& pool = MemoryPool::of("GPU:0");
  pool.release_cached();
  const std::size_t reserved = pool.statistics().bytes_reserved;
  void* const block = pool.allocate(1 << 20);
  pool.deallocate(block, 1 << 20);
  ASSERT_TRUE(emulated_cuda().synchronize());
  EXPECT_GE(pool.statistics().bytes_reserved, reserved + (1 << 20));
  EXPECT_EQ(pool.allocate(1 << 20), block);
  pool.deallocate(block, 1 << 20);
  ASSERT_TRUE(emulated_cuda().synchronize());
  pool.release_cached();
  EXPECT_EQ(pool.statistics().bytes_reserved, reserved);
}

TEST_F(GpuMemoryPoolTest, GivingBackSpoilsNobodysCapture) {
  MemoryPool& pool = MemoryPool::of("GPU:0");
  ASSERT_EQ(emulated_cuda().set_device(0), detail::CudaStatus::SUCCESS);
  std::vector<detail::CudaStream> streams(41);  // more than there are marks for
  for (detail::CudaStream& stream : streams) {
    ASSERT_EQ(emulated_cuda().stream_create(&stream), detail::CudaStatus::SUCCESS);
    (void)Tensor::empty(DType::UINT8, {100}, "GPU:0", from_cuda(stream));
  }
  ASSERT_TRUE(emulated_cuda().synchronize());
  ASSERT_EQ(emulated_cuda().begin_capture(streams.back(), testing::CaptureMode::GLOBAL),
            detail::CudaStatus::SUCCESS);
  for (std::size_t i = 0; i + 1 < streams.size(); ++i) {
    (void)Tensor::empty(DType::UINT8, {100}, "GPU:0", from_cuda(streams[i]));
  }
  pool.release_cached();
  testing::EmulatedGraph graph = nullptr;
  EXPECT_EQ(emulated_cuda().end_capture(streams.back(), &graph), detail::CudaStatus::SUCCESS);
  ASSERT_TRUE(emulated_cuda().synchronize());
  for (const detail::CudaStream stream : streams) {
    EXPECT_EQ(emulated_cuda().stream_destroy(stream), detail::CudaStatus::SUCCESS);
  }
  ASSERT_EQ(emulated_cuda().set_device(kCurrent), detail::CudaStatus::SUCCESS);
}

TEST_F(GpuMemoryPoolTest, AForeignBlockIsLeftAloneAndLogged) {
  MemoryPool& pool = MemoryPool::of("GPU:0");
  const testing::LogKeeper log;
  const std::size_t before = pool.statistics().bytes_in_use;
  int mine = 0;
  pool.deallocate(&mine, sizeof mine);
  EXPECT_THAT(log.texts(), AllOf(HasSubstr("GPU:0"), HasSubstr("cudaFreeAsync")));
  EXPECT_EQ(pool.statistics().bytes_in_use, before);
  emulated_cuda().clear_violations();
}

TEST_F(GpuMemoryPoolTest, WhenMemoryEndsTheErrorSaysHowMuchThereIs) {
  MemoryPool& pool = MemoryPool::of("GPU:0");
  const std::string text = thrown<ResourceExhaustedError>([&] { (void)pool.allocate(3u << 30); });
  EXPECT_THAT(text, AllOf(HasSubstr("GPU:0"), HasSubstr("3221225472 bytes"), HasSubstr("in use"),
                          HasSubstr("2147483648")));
  EXPECT_THAT(thrown<ResourceExhaustedError>([&] { (void)pool.allocate(~std::size_t{0}); }),
              HasSubstr("18446744073709551615"));
  const Tensor small = Tensor::zeros(DType::INT32, {4}, "GPU:0");  // it goes on
  EXPECT_THAT(elements_on_gpu<int>(small), Each(0));
}

TEST_F(GpuMemoryPoolTest, WhatIsCachedIsReleasedBeforeItGivesUp) {
  MemoryPool& pool = MemoryPool::of("GPU:1");
  emulated_cuda().calls().inject({.function = "cuda.malloc_from_pool_async", .status = 2});
  void* const block = pool.allocate(100);
  EXPECT_EQ(emulated_cuda().calls().count("cuda.trim_pool"), 1u);
  pool.deallocate(block, 100);
  emulated_cuda().calls().inject(
      {.function = "cuda.malloc_from_pool_async", .count = 2, .status = 2});
  const std::size_t before = pool.statistics().bytes_in_use;
  EXPECT_THAT(
      thrown<ResourceExhaustedError>([] { (void)Tensor::empty(DType::FLOAT32, {25}, "GPU:1"); }),
      HasSubstr("100 bytes"));
  EXPECT_EQ(pool.statistics().bytes_in_use, before);
}

TEST_F(GpuTensorTest, EveryDTypeAndSize) {
  for (const DType dtype : kAllDTypes) {
    for (const std::int64_t count : {0, 1, 31, 1009, 70001}) {
      const Tensor tensor = Tensor::zeros(dtype, {count}, "GPU:0");
      EXPECT_EQ(tensor.dtype(), dtype);
      EXPECT_EQ(tensor.size_bytes(), static_cast<std::size_t>(count) * size_in_bytes(dtype));
      EXPECT_FALSE(tensor.stream().has_value());
      EXPECT_TRUE(elements_on_gpu(tensor) == std::vector<unsigned char>(tensor.size_bytes(), 0));
    }
  }
}

TEST_F(GpuTensorTest, HostElementsAreCopied) {
  const std::vector<int> elements{1, 2, 3, 4, 5, 6};
  const Tensor tensor = Tensor::copy_of(std::span(elements), {2, 3}, "GPU:1");
  EXPECT_EQ(elements_on_gpu<int>(tensor), elements);
  EXPECT_THAT(thrown<ValueError>([&] { (void)tensor.span<int>(); }),
              HasSubstr("does not lie in host memory"));
}

/// The streams on which `function` was called, in order.
std::vector<const void*> streams_of(std::string_view function) {
  std::vector<const void*> streams;
  for (const testing::EmulatedCall& call : emulated_cuda().calls().list()) {
    if (call.function == function) streams.push_back(call.stream);
  }
  return streams;
}

TEST_F(GpuTensorTest, ComesAndGoesInTheOrderOfItsStream) {
  const detail::CudaStream stream = make_cuda_stream(1);
  const detail::CudaStream default_stream = nullptr;
  emulated_cuda().calls().clear();
  {
    const Tensor tensor = Tensor::empty(DType::FLOAT64, {10}, "GPU:1", from_cuda(stream));
    EXPECT_EQ(tensor.stream(), from_cuda(stream));
    const Tensor other = Tensor::empty(DType::FLOAT64, {10}, "GPU:1", from_cuda(default_stream));
    const Tensor plain = Tensor::empty(DType::FLOAT64, {10}, "GPU:1");
    const Tensor part = tensor.reshape({2, 5}).as_read_only();
    EXPECT_EQ(part.stream(), from_cuda(stream));
  }
  const void* const own = gpu("GPU:1").own_stream();
  EXPECT_THAT(streams_of("cuda.malloc_from_pool_async"),
              ::testing::ElementsAre(stream, nullptr, own));
  EXPECT_THAT(streams_of("cuda.free_async"), ::testing::ElementsAre(own, nullptr, stream));
  EXPECT_THAT(thrown<ValueError>(
                  [&] { (void)Tensor::empty(DType::FLOAT64, {10}, "CPU:1", from_cuda(stream)); }),
              HasSubstr("float64 (10) on CPU:1"));
}

TEST_F(GpuTensorTest, MemoryIsUsedAgainOnlyWhenItsStreamHasPassed) {
  const detail::CudaStream first = make_cuda_stream(0);
  const detail::CudaStream second = make_cuda_stream(0);
  const void* address = nullptr;
  emulated_cuda().block_stream(first);
  {
    const Tensor tensor = Tensor::empty(DType::UINT8, {3 << 20}, "GPU:0", from_cuda(first));
    address = tensor.data();
  }
  // Behind the first in its own stream it may lie at the same place; in another stream it may not.
  const Tensor elsewhere = Tensor::empty(DType::UINT8, {3 << 20}, "GPU:0", from_cuda(second));
  EXPECT_NE(elsewhere.data(), address);
  const Tensor behind = Tensor::empty(DType::UINT8, {3 << 20}, "GPU:0", from_cuda(first));
  EXPECT_EQ(behind.data(), address);
  emulated_cuda().release_stream(first);
  EXPECT_EQ(elements_on_gpu(behind).size(), 3u << 20);
}

TEST_F(GpuTensorTest, ViewsLieWhereTheySay) {
  void* const own = emulated_cuda().malloc_device(1, 64);
  void* pinned = nullptr;
  ASSERT_EQ(emulated_cuda().malloc_host(&pinned, 64), detail::CudaStatus::SUCCESS);
  std::vector<float> pageable(16);
  EXPECT_EQ(Tensor::view(own, DType::FLOAT32, {16}, "GPU:1").data(), own);
  EXPECT_EQ(Tensor::view(static_cast<std::byte*>(own) + 60, DType::FLOAT32, {1}, "GPU:1").shape(),
            Shape({1}));
  EXPECT_EQ(Tensor::view(pinned, DType::FLOAT32, {16}, "GPU:1").data(), pinned);
  EXPECT_TRUE(Tensor::view(static_cast<const float*>(own), {16}, "GPU:1").is_read_only());
  EXPECT_FALSE(Tensor::view(static_cast<float*>(nullptr), {0, 3}, "GPU:1").is_read_only());
  EXPECT_THAT(thrown<ValueError>([&] { (void)Tensor::view(own, DType::FLOAT32, {16}, "GPU:0"); }),
              AllOf(HasSubstr("float32 (16) on GPU:0"), HasSubstr("lies on CUDA device 1"),
                    HasSubstr("expected memory of CUDA device 0")));
  EXPECT_THAT(thrown<ValueError>([&] { (void)Tensor::view(std::span(pageable), "GPU:1"); }),
              AllOf(HasSubstr("float32 (16) on GPU:1"), HasSubstr("ordinary host memory"),
                    HasSubstr("CUDA device 1")));
  EXPECT_THAT(thrown<ValueError>([&] {
                (void)Tensor::view(static_cast<std::byte*>(own) + 2, DType::FLOAT32, {1}, "GPU:1");
              }),
              HasSubstr("not aligned"));
  EXPECT_THAT(thrown<ValueError>([&] { (void)Tensor::view(own, DType::FLOAT32, {16}, "GPU:3"); }),
              HasSubstr("this host has 3 GPUs"));
  emulated_cuda().free_device(own);
  EXPECT_EQ(emulated_cuda().free_host(pinned), detail::CudaStatus::SUCCESS);
}

TEST_F(GpuTensorTest, InSteadyStateTensorsComeAndGoWithoutTheHeap) {
  if (!testing::can_count_allocations()) GTEST_SKIP() << "a sanitizer owns the heap";
  const Device device("GPU:0");
  const Tensor kept = Tensor::empty(DType::FLOAT32, {100}, device);
  const auto step = [&] {
    const Tensor fresh = Tensor::empty(DType::FLOAT32, {100}, device);
    const Tensor view = Tensor::view(kept.data(), DType::FLOAT32, {100}, device);
    return fresh.num_elements() + view.num_elements();
  };
  (void)step();
  const std::size_t before = testing::num_allocations_of_this_thread();
  for (int i = 0; i < 100; ++i) (void)step();
  EXPECT_EQ(testing::num_allocations_of_this_thread(), before);
}

TEST_F(GpuTensorTest, OnAGpuThatHasFailedTensorsStillDie) {
  const testing::LogKeeper log;
  {
    const Tensor tensor = Tensor::zeros(DType::FLOAT32, {100}, "GPU:0");
    emulated_cuda().fail_device(0, detail::CudaStatus{700});
    EXPECT_THAT(thrown<InternalError>([] { (void)Tensor::zeros(DType::INT8, {1}, "GPU:0"); }),
                HasSubstr("700"));
  }
  EXPECT_THAT(log.texts(), HasSubstr("could not be given back"));
  emulated_cuda().clear_violations();
}

TEST_F(GpuTensorTest, ThreadsMakeAndDropTensors) {
  const std::size_t before = MemoryPool::of("GPU:1").statistics().bytes_in_use;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 25; ++i) {
        const Tensor tensor = Tensor::zeros(DType::FLOAT32, {t * 1000 + i}, "GPU:1");
        const Tensor copy = tensor.reshape({1, t * 1000 + i});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(MemoryPool::of("GPU:1").statistics().bytes_in_use, before);
}

}  // namespace
}  // namespace crossdevice
