// SPDX-License-Identifier: Apache-2.0
// Copies that a GPU has a part in: every pair of devices, in the order of both streams, through pinned windows where one end is host memory.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "crossdevice/core/error.h"
#include "crossdevice/device/copy.h"
#include "crossdevice/device/gpu_event.h"
#include "crossdevice/device/memory_pool.h"

#include "support/allocation_counter.h"
#include "support/gpu_fixture.h"
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

const bool kInstalled = (testing::install_emulated_gpus(4), true);

/// GPU 3 and the others do not reach each other.
class GpuCopyTest : public testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    for (int other = 0; other < 3; ++other) {
      emulated_cuda().set_peers(3, other, false);
      emulated_cuda().set_peers(other, 3, false);
    }
  }
};

constexpr std::size_t kWindow = std::size_t{4} << 20;

std::vector<unsigned char> pattern(std::size_t size_bytes, unsigned seed) {
  std::vector<unsigned char> bytes(size_bytes);
  for (std::size_t i = 0; i < size_bytes; ++i) {
    bytes[i] = static_cast<unsigned char>((i * 7 + i / 256 * 13 + seed) % 251);
  }
  return bytes;
}

std::vector<unsigned char> bytes_of(const Tensor& tensor) {
  if (!tensor.device().is_host()) return elements_on_gpu(tensor);
  const auto* const data = static_cast<const unsigned char*>(tensor.data());
  return {data, data + tensor.size_bytes()};
}

Tensor filled(DType dtype, const Shape& shape, const Device& device, unsigned seed) {
  const Tensor host = Tensor::empty(dtype, shape, "CPU:0");
  const std::vector<unsigned char> bytes = pattern(host.size_bytes(), seed);
  if (!bytes.empty()) std::memcpy(host.data(), bytes.data(), bytes.size());
  return copy_to_device(host, device);
}

TEST_F(GpuCopyTest, BetweenAnyTwoDevices) {
  const std::vector<Device> devices = {"CPU:0", "GPU:0", "GPU:1", "GPU:3"};
  unsigned seed = 0;
  for (const Device& from : devices) {
    for (const Device& to : devices) {
      for (const std::int64_t size : {0, 1, 1009, 1 << 16}) {
        const Tensor source = filled(DType::UINT8, {size}, from, ++seed);
        const Tensor destination = Tensor::zeros(DType::UINT8, {size}, to);
        copy(destination, source);
        EXPECT_EQ(bytes_of(destination), pattern(static_cast<std::size_t>(size), seed))
            << from << " to " << to << ", " << size;
        EXPECT_EQ(bytes_of(source), bytes_of(destination));
        const Tensor fresh = copy_to_device(source, to);
        EXPECT_EQ(fresh.device(), to);
        EXPECT_EQ(bytes_of(fresh), bytes_of(source));
        EXPECT_TRUE(size == 0 || fresh.data() != source.data());
      }
    }
  }
}

TEST_F(GpuCopyTest, EveryDType) {
  unsigned seed = 0;
  for (const DType dtype : kAllDTypes) {
    const Tensor source = filled(dtype, {3, 337}, "GPU:0", ++seed);
    const Tensor back = copy_to_device(copy_to_device(source, "GPU:1"), "CPU:2");
    EXPECT_EQ(back.dtype(), dtype);
    EXPECT_EQ(back.shape(), Shape({3, 337}));
    EXPECT_EQ(bytes_of(back), pattern(source.size_bytes(), seed));
  }
}

TEST_F(GpuCopyTest, ThroughAnyNumberOfWindows) {
  unsigned seed = 0;
  for (const std::size_t size : {kWindow, kWindow + 1, 3 * kWindow + 4099}) {
    const Tensor there = filled(DType::UINT8, {size}, "GPU:0", ++seed);
    const Tensor back = copy_to_device(there, "CPU:0");
    EXPECT_TRUE(bytes_of(back) == pattern(size, seed)) << size;
  }
  EXPECT_LE(emulated_cuda().calls().count("cuda.malloc_host"), 2u);
}

TEST_F(GpuCopyTest, PinnedMemoryMovesAsItIs) {
  constexpr std::size_t kSize = 2 * kWindow + 5;
  void* pinned = nullptr;
  ASSERT_EQ(emulated_cuda().malloc_host(&pinned, kSize), detail::CudaStatus::SUCCESS);
  const std::vector<unsigned char> bytes = pattern(kSize, 3);
  std::memcpy(pinned, bytes.data(), kSize);
  const Tensor host = Tensor::view(pinned, DType::UINT8, {kSize}, "CPU:0");
  const Tensor there = Tensor::empty(DType::UINT8, {kSize}, "GPU:1");
  emulated_cuda().calls().clear();
  copy(there, host);
  EXPECT_EQ(emulated_cuda().calls().count("cuda.memcpy_async"), 1u);
  std::memset(pinned, 0, kSize);
  copy(host, there);
  EXPECT_EQ(emulated_cuda().calls().count("cuda.memcpy_async"), 2u);
  EXPECT_TRUE(bytes_of(host) == bytes);
  EXPECT_EQ(emulated_cuda().free_host(pinned), detail::CudaStatus::SUCCESS);
}

TEST_F(GpuCopyTest, OnOneStreamItIsOneCallAndNothingElse) {
  const Tensor source = filled(DType::UINT8, {1000}, "GPU:0", 1);
  const Tensor destination = Tensor::empty(DType::UINT8, {1000}, "GPU:0");
  emulated_cuda().calls().clear();
  copy(destination, source);
  EXPECT_THAT(emulated_cuda().calls().names(), ::testing::ElementsAre("cuda.memcpy_async"));
  EXPECT_EQ(bytes_of(destination), pattern(1000, 1));
}

TEST_F(GpuCopyTest, ItWaitsForTheSourcesStreamAndTheHostDoesNot) {
  for (const char* from : {"GPU:0", "GPU:1", "GPU:3"}) {
    const detail::CudaStream before = make_cuda_stream(gpu(from).ordinal());
    const detail::CudaStream behind = make_cuda_stream(0);
    const Tensor value = filled(DType::UINT8, {1000}, from, 5);
    detail::GpuEvent::record(gpu(from), gpu(from).own_stream()).wait(Deadline::never());
    emulated_cuda().block_stream(before);
    const Tensor source = Tensor::empty(DType::UINT8, {1000}, from, from_cuda(before));
    const Tensor destination = Tensor::empty(DType::UINT8, {1000}, "GPU:0", from_cuda(behind));
    copy(source, value);  // behind the block
    copy(destination, source);
    const detail::GpuEvent copied = detail::GpuEvent::record(gpu("GPU:0"), behind);
    EXPECT_FALSE(copied.has_completed());
    emulated_cuda().release_stream(before);
    copied.wait(Deadline::never());
    EXPECT_EQ(bytes_of(destination), pattern(1000, 5));
  }
}

TEST_F(GpuCopyTest, TheSourceMayBeWrittenOrDroppedAtOnce) {
  for (const char* from : {"GPU:0", "GPU:1", "GPU:3"}) {
    const detail::CudaStream behind = make_cuda_stream(0);
    const Tensor destination = Tensor::empty(DType::UINT8, {4096}, "GPU:0", from_cuda(behind));
    emulated_cuda().block_stream(behind);
    {
      const Tensor source = filled(DType::UINT8, {4096}, from, 9);
      const Tensor zeros = Tensor::zeros(DType::UINT8, {4096}, from);
      copy(destination, source);
      copy(source, zeros);  // comes behind the first copy
    }
    // What is dropped is used again, in its stream's order.
    const Tensor again = Tensor::zeros(DType::UINT8, {4096}, from);
    emulated_cuda().release_stream(behind);
    EXPECT_EQ(bytes_of(destination), pattern(4096, 9)) << from;
    EXPECT_THAT(bytes_of(again), Each(0));
  }
}

TEST_F(GpuCopyTest, DefaultStreamsOfTwoGpusAreTwoStreams) {
  const detail::CudaStream null_stream = nullptr;
  const detail::CudaStream blocker = make_cuda_stream(1);
  const Tensor value = filled(DType::UINT8, {512}, "GPU:1", 4);
  const Tensor source =
      Tensor::view(value.data(), DType::UINT8, {512}, "GPU:1", from_cuda(blocker));
  const Tensor middle = Tensor::empty(DType::UINT8, {512}, "GPU:1", from_cuda(null_stream));
  const Tensor destination = Tensor::empty(DType::UINT8, {512}, "GPU:0", from_cuda(null_stream));
  emulated_cuda().block_stream(blocker);
  copy(middle, source);
  copy(destination, middle);
  emulated_cuda().release_stream(blocker);
  EXPECT_EQ(bytes_of(destination), pattern(512, 4));
}

TEST_F(GpuCopyTest, HostMemoryIsFreeOnReturn) {
  const Tensor there = Tensor::empty(DType::UINT8, {3 * kWindow}, "GPU:0");
  {
    std::vector<unsigned char> bytes = pattern(3 * kWindow, 8);
    copy(there, Tensor::view(std::span(bytes), "CPU:0"));
    std::fill(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
  }
  const Tensor back = Tensor::empty(DType::UINT8, {3 * kWindow}, "CPU:0");
  copy(back, there);
  const std::vector<unsigned char> got = bytes_of(back);  // without waiting for anything
  EXPECT_TRUE(got == pattern(3 * kWindow, 8));
}

TEST_F(GpuCopyTest, AWindowThatACopyMayStillComeToIsNobodyElses) {
  const detail::CudaStream stream = make_cuda_stream(0);
  const Tensor late = Tensor::empty(DType::UINT8, {100}, "GPU:0", from_cuda(stream));
  copy(late, filled(DType::UINT8, {100}, "CPU:0", 1));
  const Tensor host = Tensor::zeros(DType::UINT8, {100}, "CPU:0");
  emulated_cuda().block_stream(stream);
  // The copy to the window is enqueued, and nobody will know when it has come.
  emulated_cuda().calls().inject({.function = "cuda.event_record"});
  EXPECT_NE(thrown<InternalError>([&] { copy(host, late); }), "");
  const Tensor other = copy_to_device(filled(DType::UINT8, {100}, "CPU:0", 2), "GPU:1");
  emulated_cuda().release_stream(stream);
  ASSERT_TRUE(emulated_cuda().synchronize());
  EXPECT_EQ(bytes_of(other),
            pattern(100, 2));  // and no order of the two was needed: see TearDown()
}

TEST_F(GpuCopyTest, BadCopiesAreRefused) {
  const Tensor there = filled(DType::FLOAT32, {8}, "GPU:0", 1);
  const Tensor host = Tensor::zeros(DType::FLOAT32, {8}, "CPU:0");
  EXPECT_THAT(thrown<ValueError>([&] { copy(there.as_read_only(), host); }),
              HasSubstr("float32 (8) on GPU:0 is read-only"));
  EXPECT_THAT(thrown<ValueError>([&] {
                copy(host.reshape({2, 4}), there);
              }),
              HasSubstr("same dtype and shape"));
  const Tensor first = Tensor::view(static_cast<float*>(there.data()), {5}, "GPU:0");
  const Tensor last = Tensor::view(static_cast<float*>(there.data()) + 3, {5}, "GPU:0");
  EXPECT_THAT(thrown<ValueError>([&] { copy(last, first); }), HasSubstr("overlap in part"));
  EXPECT_THAT(thrown<ValueError>([&] { (void)copy_to_device(host, "GPU:4"); }),
              HasSubstr("this host has 4 GPUs"));
  emulated_cuda().calls().clear();
  copy(there, there.as_read_only());
  EXPECT_THAT(emulated_cuda().calls().names(), ::testing::IsEmpty());
}

TEST_F(GpuCopyTest, ACaptureTakesCopiesBetweenGpusAndRefusesThoseOfTheHost) {
  const detail::CudaStream stream = make_cuda_stream(0);
  const Tensor source = filled(DType::UINT8, {100}, "GPU:0", 1);
  const Tensor destination = Tensor::zeros(DType::UINT8, {100}, "GPU:0");
  const Tensor from = Tensor::view(source.data(), DType::UINT8, {100}, "GPU:0", from_cuda(stream));
  const Tensor to =
      Tensor::view(destination.data(), DType::UINT8, {100}, "GPU:0", from_cuda(stream));
  ASSERT_TRUE(emulated_cuda().synchronize());
  ASSERT_EQ(emulated_cuda().begin_capture(stream, testing::CaptureMode::THREAD_LOCAL),
            detail::CudaStatus::SUCCESS);
  copy(to, from);
  EXPECT_THAT(thrown<FailedPreconditionError>([&] { (void)copy_to_device(from, "CPU:0"); }),
              HasSubstr("captured"));
  testing::EmulatedGraph graph{};
  ASSERT_EQ(emulated_cuda().end_capture(stream, &graph), detail::CudaStatus::SUCCESS);
  EXPECT_THAT(bytes_of(destination), Each(0));
  ASSERT_EQ(emulated_cuda().launch_graph(graph, stream), detail::CudaStatus::SUCCESS);
  EXPECT_EQ(bytes_of(destination), pattern(100, 1));
  EXPECT_EQ(emulated_cuda().destroy_graph(graph), detail::CudaStatus::SUCCESS);
}

TEST_F(GpuCopyTest, InSteadyStateNothingIsAllocated) {
  if (!testing::can_count_allocations()) GTEST_SKIP() << "a sanitizer owns the heap";
  const Tensor one = filled(DType::UINT8, {5000}, "GPU:0", 1);
  const Tensor two = Tensor::empty(DType::UINT8, {5000}, "GPU:1");
  const Tensor host = Tensor::empty(DType::UINT8, {5000}, "CPU:0");
  const auto step = [&] {
    copy(two, one);
    copy(host, two);
    copy(one, host);
  };
  for (int i = 0; i < 3; ++i) step();
  emulated_cuda().calls().clear();
  const std::size_t before = testing::num_allocations_of_this_thread();
  for (int i = 0; i < 50; ++i) step();
  EXPECT_EQ(testing::num_allocations_of_this_thread(), before);
  for (const char* function : {"cuda.malloc_host", "cuda.event_create", "cuda.stream_create",
                               "cuda.malloc_from_pool_async", "cuda.enable_peer_access"}) {
    EXPECT_EQ(emulated_cuda().calls().count(function), 0u) << function;
  }
}

TEST_F(GpuCopyTest, ThreadsCopyAtOnce) {
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      const Device device(t % 2 == 0 ? "GPU:0" : "GPU:1");
      for (unsigned i = 0; i < 2; ++i) {
        const Tensor there = filled(DType::UINT8, {kWindow + 100 * t}, device, t + i);
        const Tensor back = copy_to_device(copy_to_device(there, "GPU:3"), "CPU:0");
        EXPECT_TRUE(bytes_of(back) == pattern(back.size_bytes(), t + i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(emulated_cuda().calls().count("cuda.malloc_host"), 8u);
}

}  // namespace
}  // namespace crossdevice
