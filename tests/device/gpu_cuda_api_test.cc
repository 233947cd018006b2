// SPDX-License-Identifier: Apache-2.0
// The table over CUDA's run time on a GPU: each function once, and the order of streams that everything above relies on.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/device/gpu_platform.h"

#include "support/real_gpu.h"

namespace crossdevice::detail {
namespace {

using testing::wait_for_stream;

class GpuCudaApiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    CROSSDEVICE_SKIP_WITHOUT_GPU();
    cuda_ = gpu_platform().cuda.get();
    CROSSDEVICE_ASSERT_CUDA(cuda_->set_device(0));
    CROSSDEVICE_ASSERT_CUDA(cuda_->stream_create(&stream_));
    CROSSDEVICE_ASSERT_CUDA(cuda_->stream_create(&other_stream_));
    CROSSDEVICE_ASSERT_CUDA(cuda_->create_pool(&pool_, 0));
  }
  void TearDown() override {
    if (cuda_ == nullptr) return;
    for (CudaStream stream : {stream_, other_stream_}) {
      if (stream == nullptr) continue;
      EXPECT_EQ(cuda_->stream_destroy(stream), CudaStatus::SUCCESS);
    }
  }
  void* make(std::size_t size_bytes) {
    void* pointer = nullptr;
    testing::must_succeed(cuda_->malloc_from_pool_async(&pointer, size_bytes, pool_, stream_),
                          "malloc_from_pool_async");
    return pointer;
  }

  CudaApi* cuda_ = nullptr;
  CudaStream stream_ = nullptr;
  CudaStream other_stream_ = nullptr;
  CudaPool pool_ = nullptr;
};

TEST_F(GpuCudaApiTest, SaysWhatThereIs) {
  int driver = 0;
  int runtime = 0;
  int count = 0;
  int current = -1;
  CROSSDEVICE_ASSERT_CUDA(cuda_->driver_version(&driver));
  CROSSDEVICE_ASSERT_CUDA(cuda_->runtime_version(&runtime));
  CROSSDEVICE_ASSERT_CUDA(cuda_->get_device_count(&count));
  CROSSDEVICE_ASSERT_CUDA(cuda_->get_device(&current));
  EXPECT_GE(driver / 1000, runtime / 1000);
  EXPECT_GE(count, 1);
  EXPECT_EQ(current, 0);
  for (int device = 0; device < count; ++device) {
    CudaDeviceProperties properties;
    CROSSDEVICE_ASSERT_CUDA(cuda_->get_device_properties(&properties, device));
    EXPECT_NE(properties.name, "");
    EXPECT_EQ(properties.pci_bus_id.size(), 12U) << properties.pci_bus_id;
    EXPECT_GE(properties.compute_capability, 75);
    EXPECT_GT(properties.num_multiprocessors, 0);
    EXPECT_GT(properties.total_memory_bytes, std::size_t{1} << 28);
    EXPECT_TRUE(properties.has_memory_pools);
  }
}

TEST_F(GpuCudaApiTest, ErrorsAreStatusesWithCudasText) {
  CudaDeviceProperties properties;
  EXPECT_EQ(cuda_->get_device_properties(&properties, 4711), CudaStatus::INVALID_DEVICE);
  EXPECT_EQ(cuda_->set_device(4711), CudaStatus::INVALID_DEVICE);
  const std::string text = cuda_->error_text(CudaStatus::INVALID_DEVICE);
  EXPECT_TRUE(text.starts_with("cudaErrorInvalidDevice: ")) << text;
  void* pointer = nullptr;
  EXPECT_EQ(cuda_->malloc_from_pool_async(&pointer, std::size_t{1} << 50, pool_, stream_),
            CudaStatus::OUT_OF_MEMORY);
  // What came back is over: the next call is a new one.
  pointer = make(16);
  CROSSDEVICE_ASSERT_CUDA(cuda_->free_async(pointer, stream_));
  wait_for_stream(stream_);
}

TEST_F(GpuCudaApiTest, CopiesInTheOrderOfAStream) {
  constexpr std::size_t kSize = 1 << 20;
  void* pinned = nullptr;
  CROSSDEVICE_ASSERT_CUDA(cuda_->malloc_host(&pinned, kSize));
  auto* const host = static_cast<unsigned char*>(pinned);
  void* const a = make(kSize);
  void* const b = make(kSize);
  std::memset(pinned, 1, kSize);
  CROSSDEVICE_ASSERT_CUDA(cuda_->memset_async(a, 7, kSize, stream_));
  CROSSDEVICE_ASSERT_CUDA(cuda_->memcpy_async(b, a, kSize, stream_));
  CROSSDEVICE_ASSERT_CUDA(cuda_->memset_async(a, 9, kSize, stream_));
  CROSSDEVICE_ASSERT_CUDA(cuda_->memcpy_async(pinned, b, kSize, stream_));
  wait_for_stream(stream_);
  EXPECT_TRUE(std::all_of(host, host + kSize, [](unsigned char c) { return c == 7; }));
  CROSSDEVICE_ASSERT_CUDA(cuda_->free_async(a, stream_));
  CROSSDEVICE_ASSERT_CUDA(cuda_->free_async(b, stream_));
  wait_for_stream(stream_);
  CROSSDEVICE_ASSERT_CUDA(cuda_->free_host(pinned));
}

TEST_F(GpuCudaApiTest, KnowsWhatKindOfMemoryAPointerIs) {
  int on_stack = 0;
  void* pinned = nullptr;
  CROSSDEVICE_ASSERT_CUDA(cuda_->malloc_host(&pinned, 4096));
  void* const on_device = make(4096);
  const auto kind_of = [&](const void* pointer) {
    CudaPointerAttributes attributes;
    testing::must_succeed(cuda_->get_pointer_attributes(&attributes, pointer), "attributes");
    return attributes;
  };
  EXPECT_EQ(kind_of(&on_stack).kind, CudaMemoryKind::UNREGISTERED);
  EXPECT_EQ(kind_of(pinned).kind, CudaMemoryKind::HOST);
  EXPECT_EQ(kind_of(on_device).kind, CudaMemoryKind::DEVICE);
  EXPECT_EQ(kind_of(on_device).device, 0);
  CROSSDEVICE_ASSERT_CUDA(cuda_->free_async(on_device, stream_));
  wait_for_stream(stream_);
  CROSSDEVICE_ASSERT_CUDA(cuda_->free_host(pinned));
}

TEST_F(GpuCudaApiTest, APoolKeepsWhatIsFreedUntilItIsTrimmed) {
  constexpr std::size_t kSize = std::size_t{64} << 20;
  CudaPoolUse use;
  void* const pointer = make(kSize);
  wait_for_stream(stream_);
  CROSSDEVICE_ASSERT_CUDA(cuda_->get_pool_use(&use, pool_));
  EXPECT_GE(use.used_bytes, kSize);
  CROSSDEVICE_ASSERT_CUDA(cuda_->free_async(pointer, stream_));
  CudaEvent freed = nullptr;
  CROSSDEVICE_ASSERT_CUDA(cuda_->event_create(&freed));
  CROSSDEVICE_ASSERT_CUDA(cuda_->event_record(freed, stream_));
  wait_for_stream(stream_);
  CROSSDEVICE_ASSERT_CUDA(cuda_->get_pool_use(&use, pool_));
  EXPECT_EQ(use.used_bytes, 0U);
  EXPECT_GE(use.reserved_bytes, kSize);
  CROSSDEVICE_ASSERT_CUDA(cuda_->event_synchronize(freed));  // which has come: see FreedMarks
  CROSSDEVICE_ASSERT_CUDA(cuda_->event_destroy(freed));
  CROSSDEVICE_ASSERT_CUDA(cuda_->trim_pool(pool_));
  CROSSDEVICE_ASSERT_CUDA(cuda_->get_pool_use(&use, pool_));
  EXPECT_LT(use.reserved_bytes, kSize);
  CROSSDEVICE_ASSERT_CUDA(cuda_->set_pool_access(pool_, 0));
}

TEST_F(GpuCudaApiTest, TheTimeBetweenTwoEventsHasASign) {
  CudaEvent first = nullptr;
  CudaEvent second = nullptr;
  CROSSDEVICE_ASSERT_CUDA(cuda_->event_create_with_timing(&first));
  CROSSDEVICE_ASSERT_CUDA(cuda_->event_create_with_timing(&second));
  CROSSDEVICE_ASSERT_CUDA(cuda_->event_record(first, stream_));
  wait_for_stream(stream_);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CROSSDEVICE_ASSERT_CUDA(cuda_->event_record(second, stream_));
  wait_for_stream(stream_);
  float forth = 0;
  float back = 0;
  CROSSDEVICE_ASSERT_CUDA(cuda_->event_elapsed(&forth, first, second));
  CROSSDEVICE_ASSERT_CUDA(cuda_->event_elapsed(&back, second, first));
  EXPECT_GE(forth, 19);
  EXPECT_LT(forth, 2000);
  EXPECT_FLOAT_EQ(back, -forth);
  CROSSDEVICE_ASSERT_CUDA(cuda_->event_destroy(first));
  CROSSDEVICE_ASSERT_CUDA(cuda_->event_destroy(second));
}

/// Holds a stream back until it is let go.
struct Gate {
  std::atomic<bool> is_open{false};
  static void wait(void* gate) { static_cast<Gate*>(gate)->is_open.wait(false); }
  void open() {
    is_open = true;
    is_open.notify_all();
  }
};

TEST_F(GpuCudaApiTest, EventsHoldStreamsBack) {
  CudaEvent event = nullptr;
  CROSSDEVICE_ASSERT_CUDA(cuda_->event_create(&event));
  EXPECT_EQ(cuda_->event_query(event), CudaStatus::SUCCESS) << "never recorded";
  Gate gate;
  std::atomic<int> order{0};
  CROSSDEVICE_ASSERT_CUDA(cuda_->launch_host_function(stream_, Gate::wait, &gate));
  CROSSDEVICE_ASSERT_CUDA(cuda_->event_record(event, stream_));
  CROSSDEVICE_ASSERT_CUDA(cuda_->stream_wait_event(other_stream_, event));
  CROSSDEVICE_ASSERT_CUDA(cuda_->launch_host_function(
      other_stream_, [](void* to) { *static_cast<std::atomic<int>*>(to) = 1; }, &order));
  EXPECT_EQ(cuda_->event_query(event), CudaStatus::NOT_READY);
  EXPECT_EQ(cuda_->stream_query(other_stream_), CudaStatus::NOT_READY);
  EXPECT_EQ(order, 0);
  gate.open();
  wait_for_stream(other_stream_);
  EXPECT_EQ(cuda_->event_query(event), CudaStatus::SUCCESS);
  EXPECT_EQ(order, 1);
  CROSSDEVICE_ASSERT_CUDA(cuda_->event_destroy(event));
}

TEST_F(GpuCudaApiTest, NothingIsCapturedUnlessSomebodyDoes) {
  CudaCaptureStatus capture = CudaCaptureStatus::ACTIVE;
  CROSSDEVICE_ASSERT_CUDA(cuda_->stream_get_capture(stream_, &capture));
  EXPECT_EQ(capture, CudaCaptureStatus::NONE);
  detail::CudaCaptureMode mode = detail::CudaCaptureMode::RELAXED;
  CROSSDEVICE_ASSERT_CUDA(cuda_->exchange_capture_mode(&mode));
  EXPECT_EQ(mode, detail::CudaCaptureMode::GLOBAL);
  CROSSDEVICE_ASSERT_CUDA(cuda_->exchange_capture_mode(&mode));
  EXPECT_EQ(mode, detail::CudaCaptureMode::RELAXED);
}

TEST_F(GpuCudaApiTest, PeersAreReachedWhereTheyCanBe) {
  int count = 0;
  CROSSDEVICE_ASSERT_CUDA(cuda_->get_device_count(&count));
  if (count < 2) GTEST_SKIP() << "one GPU only";
  bool can = false;
  CROSSDEVICE_ASSERT_CUDA(cuda_->can_access_peer(&can, 0, 1));
  if (!can) GTEST_SKIP() << "GPU 0 does not reach GPU 1";
  CROSSDEVICE_ASSERT_CUDA(cuda_->enable_peer_access(1));
  EXPECT_EQ(cuda_->enable_peer_access(1), CudaStatus::PEER_ACCESS_ALREADY_ENABLED);
}

}  // namespace
}  // namespace crossdevice::detail
