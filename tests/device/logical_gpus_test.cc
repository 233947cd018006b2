// SPDX-License-Identifier: Apache-2.0
// Several devices on one GPU: which lie where, what they share, and when the split is fixed.
#include <cstring>
#include <string>
#include <vector>

#include "crossdevice/core/error.h"
#include "crossdevice/device/copy.h"
#include "crossdevice/device/dlpack.h"
#include "crossdevice/device/interop_dlpack.h"
#include "crossdevice/device/memory_pool.h"

#include "support/gpu_fixture.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

using ::testing::AllOf;
using testing::elements_on_gpu;
using testing::emulated_cuda;
using testing::gpu;
using ::testing::HasSubstr;
using testing::thrown;

// Names of devices, and how many there are, do not fix the split yet.
const bool kInstalled = [] {
  testing::install_emulated_gpus(3);
  if (num_gpus() != 3) return false;
  set_logical_gpu_devices(5);
  if (num_gpus() != 15) return false;
  set_logical_gpu_devices(2);
  return num_gpus() == 6;
}();

using LogicalGpusTest = testing::GpuTest;

TEST_F(LogicalGpusTest, EveryGpuIsTwoDevices) {
  EXPECT_TRUE(kInstalled);
  EXPECT_EQ(num_gpus(), 6);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(gpu("GPU:" + std::to_string(i)).ordinal(), i / 2) << i;
  }
  EXPECT_EQ(&gpu("GPU:2"), &gpu("GPU:3"));
  EXPECT_EQ(thrown<ValueError>([] { (void)gpu("GPU:6"); }),
            "GPU:6: this host has 3 GPUs, each split into 2 devices (CROSSDEVICE_LOGICAL_GPUS)");
}

TEST_F(LogicalGpusTest, TheSplitIsFixedByTheFirstUse) {
  (void)gpu("GPU:0");
  set_logical_gpu_devices(2);
  EXPECT_THAT(thrown<FailedPreconditionError>([] { set_logical_gpu_devices(3); }),
              HasSubstr("each is 2 devices"));
  for (const int bad : {0, -1, 4097}) {
    EXPECT_THAT(thrown<ValueError>([&] { set_logical_gpu_devices(bad); }),
                AllOf(HasSubstr("1 to 4096"), HasSubstr("got " + std::to_string(bad))));
  }
  EXPECT_EQ(num_gpus(), 6);
}

TEST_F(LogicalGpusTest, EachCountsItsOwnMemory) {
  const std::size_t before = MemoryPool::of("GPU:1").statistics().bytes_in_use;
  const Tensor tensor = Tensor::empty(DType::UINT8, {1000}, "GPU:0");
  EXPECT_EQ(MemoryPool::of("GPU:1").statistics().bytes_in_use, before);
  EXPECT_GE(MemoryPool::of("GPU:0").statistics().bytes_in_use, 1000u);
  EXPECT_EQ(MemoryPool::of("GPU:0").statistics().bytes_reserved,
            MemoryPool::of("GPU:1").statistics().bytes_reserved);
}

TEST_F(LogicalGpusTest, CopiesBetweenThemAreOneCallOnOneStream) {
  const std::vector<int> elements{1, 2, 3};
  const Tensor one = Tensor::copy_of(std::span(elements), {3}, "GPU:4");
  const Tensor two = Tensor::empty(DType::INT32, {3}, "GPU:5");
  EXPECT_NE(one.device(), two.device());
  EXPECT_NE(one.data(), two.data());
  emulated_cuda().calls().clear();
  copy(two, one);
  EXPECT_THAT(emulated_cuda().calls().names(), ::testing::ElementsAre("cuda.memcpy_async"));
  EXPECT_EQ(elements_on_gpu<int>(two), elements);
  EXPECT_EQ(elements_on_gpu<int>(copy_to_device(two, "GPU:0")), elements);
  // Memory of the GPU may be a view on either of its devices.
  EXPECT_EQ(Tensor::view(one.data(), DType::INT32, {3}, "GPU:5").device(), Device("GPU:5"));
  EXPECT_THAT(
      thrown<ValueError>([&] { (void)Tensor::view(one.data(), DType::INT32, {3}, "GPU:3"); }),
      HasSubstr("lies on CUDA device 2, expected memory of CUDA device 1"));
}

TEST_F(LogicalGpusTest, DlpackNumbersGpusAsCudaDoes) {
  const Tensor tensor = Tensor::zeros(DType::FLOAT32, {3}, "GPU:5");
  DLManagedTensor* const lent = to_dlpack(tensor);
  EXPECT_EQ(lent->dl_tensor.device.device_type, kDLCUDA);
  EXPECT_EQ(lent->dl_tensor.device.device_id, 2);
  const Tensor back = from_dlpack(lent);
  EXPECT_EQ(back.device(), Device("GPU:4"));
  EXPECT_EQ(back.data(), tensor.data());
}

}  // namespace
}  // namespace crossdevice
