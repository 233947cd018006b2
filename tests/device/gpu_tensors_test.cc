// SPDX-License-Identifier: Apache-2.0
// Tensors, copies, streams and DLPack on a real GPU: what the tests over the emulation promise, as far as one GPU can show it.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/copy.h"
#include "crossdevice/device/dlpack.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/gpu_event.h"
#include "crossdevice/device/interop_dlpack.h"
#include "crossdevice/device/memory_pool.h"
#include "crossdevice/device/stream.h"

#include "support/real_gpu.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

using ::testing::HasSubstr;
using testing::thrown;

// Every GPU is two devices, so that one GPU shows what is between devices too.
const bool kIsSplit = (set_logical_gpu_devices(2), true);

class GpuTensorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    CROSSDEVICE_SKIP_WITHOUT_GPU();
    ASSERT_TRUE(kIsSplit);
  }
};

Deadline a_minute() { return Deadline::after(std::chrono::minutes(1)); }

std::vector<unsigned char> pattern(std::size_t size_bytes, unsigned seed) {
  std::vector<unsigned char> bytes(size_bytes);
  for (std::size_t i = 0; i < size_bytes; ++i) {
    bytes[i] = static_cast<unsigned char>((i * 7 + i / 256 * 13 + seed) % 251);
  }
  return bytes;
}

std::vector<unsigned char> bytes_of(const Tensor& tensor) {
  const Tensor host = copy_to_device(tensor, "CPU:0");
  const auto* const data = static_cast<const unsigned char*>(host.data());
  return {data, data + host.size_bytes()};
}

Tensor filled(std::size_t size_bytes, const Device& device, unsigned seed) {
  std::vector<unsigned char> bytes = pattern(size_bytes, seed);
  return copy_to_device(Tensor::view(std::span(bytes), "CPU:0"), device);
}

/// A stream that stands still, at a task of the host, until it is let go.
class HeldStream {
 public:
  explicit HeldStream(const Device& device) : stream_(device, "held") {
    stream_.launch([this] {
      while (!is_released_.load()) std::this_thread::yield();
    });
  }
  ~HeldStream() {
    release();
    stream_.synchronize(a_minute());
  }
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;
  void release() { is_released_.store(true); }
  Stream& operator*() { return stream_; }

 private:
  std::atomic<bool> is_released_{false};
  Stream stream_;
};

TEST_F(GpuTensorsTest, EveryDTypeAndSizeComesBackAsItWent) {
  for (const DType dtype : kAllDTypes) {
    for (const std::int64_t count : {0, 1, 1009, 3 << 20}) {
      const Tensor zeros = Tensor::zeros(dtype, {count}, "GPU:0");
      EXPECT_TRUE(bytes_of(zeros) == std::vector<unsigned char>(zeros.size_bytes(), 0));
      const Tensor there = filled(zeros.size_bytes(), "GPU:0", 3);
      EXPECT_TRUE(bytes_of(copy_to_device(there, "GPU:1")) == pattern(zeros.size_bytes(), 3));
    }
  }
}

TEST_F(GpuTensorsTest, StreamsKeepTheirOrder) {
  const Tensor value = filled(1 << 20, "GPU:0", 5);
  HeldStream held("GPU:0");
  const Tensor source = Tensor::empty(DType::UINT8, {1 << 20}, "GPU:0", (*held).view());
  copy(source, value);
  Tensor destination;
  {
    const Tensor middle = copy_to_device(source, "GPU:1");
    destination = copy_to_device(middle, "GPU:0");
  }
  const Tensor again =
      Tensor::zeros(DType::UINT8, {1 << 20}, "GPU:1");  // may lie where `middle` lay
  const detail::GpuEvent copied =
      detail::GpuEvent::record(detail::GpuDevice::of("GPU:0"), detail::gpu_stream_of(destination));
  EXPECT_FALSE(copied.has_completed());
  EXPECT_THAT(thrown<DeadlineExceededError>(
                  [&] { copied.wait(Deadline::after(std::chrono::milliseconds(20))); }),
              HasSubstr("CUDA device 0"));
  held.release();
  copied.wait(a_minute());
  EXPECT_TRUE(bytes_of(destination) == pattern(1 << 20, 5));
}

TEST_F(GpuTensorsTest, TasksOfTheHostRunInStreamOrder) {
  Stream stream("GPU:0", "mine");
  std::string order;
  stream.launch([&] { order += 'a'; });
  const Event first = stream.record();
  Stream host("CPU:0", "host");
  host.wait(first);
  host.launch([&] { order += 'b'; });
  host.synchronize(a_minute());
  stream.launch([&] { order += 'c'; });
  stream.synchronize(a_minute());
  EXPECT_EQ(order, "abc");
}

TEST_F(GpuTensorsTest, ThePoolCountsKeepsAndEnds) {
  MemoryPool& pool = MemoryPool::of("GPU:0");
  const std::size_t before = pool.statistics().bytes_in_use;
  {
    const Tensor tensor = Tensor::empty(DType::UINT8, {100 << 20}, "GPU:0");
    EXPECT_EQ(pool.statistics().bytes_in_use, before + (100 << 20));
  }
  const Tensor marker = Tensor::zeros(DType::UINT8, {1}, "GPU:0");
  EXPECT_EQ(bytes_of(marker).size(), 1u);  // the stream has passed the end of the tensor
  EXPECT_GE(pool.statistics().bytes_reserved, std::size_t{100} << 20);
  pool.release_cached();
  EXPECT_LT(pool.statistics().bytes_reserved, std::size_t{100} << 20);
  const std::size_t all = detail::GpuDevice::of("GPU:0").properties().total_memory_bytes;
  EXPECT_THAT(thrown<ResourceExhaustedError>(
                  [&] { (void)Tensor::empty(DType::UINT8, {2 * all}, "GPU:0"); }),
              HasSubstr("GPU:0"));
  EXPECT_EQ(bytes_of(filled(100, "GPU:0", 1)), pattern(100, 1));  // it goes on
}

TEST_F(GpuTensorsTest, ViewsLieWhereTheySay) {
  std::vector<float> pageable(4);
  EXPECT_THAT(thrown<ValueError>([&] { (void)Tensor::view(std::span(pageable), "GPU:0"); }),
              HasSubstr("ordinary host memory"));
  const Tensor tensor = Tensor::zeros(DType::FLOAT32, {4}, "GPU:0");
  EXPECT_EQ(Tensor::view(tensor.data(), DType::FLOAT32, {4}, "GPU:1").data(), tensor.data());
  DLManagedTensor* const lent = to_dlpack(tensor);
  EXPECT_EQ(lent->dl_tensor.device.device_type, kDLCUDA);
  EXPECT_EQ(from_dlpack(lent).device(), Device("GPU:0"));
}

TEST_F(GpuTensorsTest, PinnedMemoryMovesAsItIs) {
  detail::CudaApi& cuda = *detail::gpu_platform().cuda;
  void* pinned = nullptr;
  CROSSDEVICE_ASSERT_CUDA(cuda.malloc_host(&pinned, 5 << 20));
  const std::vector<unsigned char> bytes = pattern(5 << 20, 9);
  std::memcpy(pinned, bytes.data(), bytes.size());
  const Tensor host = Tensor::view(pinned, DType::UINT8, {5 << 20}, "CPU:0");
  const Tensor there = copy_to_device(host, "GPU:0");
  std::memset(pinned, 0, bytes.size());
  copy(host, there);
  EXPECT_EQ(std::memcmp(pinned, bytes.data(), bytes.size()), 0);
  CROSSDEVICE_ASSERT_CUDA(cuda.free_host(pinned));
}

TEST_F(GpuTensorsTest, TheCurrentDeviceAndTheDefaultStreamStayTheProgramsOwn) {
  detail::CudaApi& cuda = *detail::gpu_platform().cuda;
  int count = 0;
  CROSSDEVICE_ASSERT_CUDA(cuda.get_device_count(&count));
  const int mine = count - 1;
  CROSSDEVICE_ASSERT_CUDA(cuda.set_device(mine));
  const detail::CudaStream default_stream = nullptr;
  const Tensor tensor = Tensor::empty(DType::UINT8, {64}, "GPU:0", from_cuda(default_stream));
  copy(tensor, filled(64, "GPU:1", 2));
  EXPECT_EQ(bytes_of(tensor), pattern(64, 2));
  int current = -1;
  CROSSDEVICE_ASSERT_CUDA(cuda.get_device(&current));
  EXPECT_EQ(current, mine);
}

}  // namespace
}  // namespace crossdevice
