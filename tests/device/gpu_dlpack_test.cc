// SPDX-License-Identifier: Apache-2.0
// CUDA memory from and to other libraries.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "crossdevice/core/error.h"
#include "crossdevice/device/copy.h"
#include "crossdevice/device/dlpack.h"
#include "crossdevice/device/gpu_event.h"
#include "crossdevice/device/interop_dlpack.h"

#include "support/gpu_fixture.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

using ::testing::AllOf;
using testing::elements_on_gpu;
using testing::emulated_cuda;
using ::testing::HasSubstr;
using testing::make_cuda_stream;
using testing::thrown;

const bool kInstalled = (testing::install_emulated_gpus(3), true);

/// int32 (2, 3) in memory of another library's.
struct Foreign {
  explicit Foreign(int device) : data(emulated_cuda().malloc_device(device, 24)) {
    managed.dl_tensor = {.data = data,
                         .device = {kDLCUDA, device},
                         .ndim = 2,
                         .dtype = {kDLInt, 32, 1},
                         .shape = shape.data(),
                         .strides = nullptr,
                         .byte_offset = 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) {
      ++static_cast<Foreign*>(self->manager_ctx)->num_deletions;
    };
  }
  ~Foreign() {
    EXPECT_TRUE(emulated_cuda().synchronize());
    emulated_cuda().free_device(data);
  }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;

  void* data;
  std::array<std::int64_t, 2> shape{2, 3};
  int num_deletions = 0;
  DLManagedTensor managed{};
};

using GpuDlpackTest = testing::GpuTest;

TEST_F(GpuDlpackTest, ForeignMemoryIsATensorOfItsGpu) {
  Foreign foreign(1);
  {
    const Tensor tensor = from_dlpack(&foreign.managed);
    EXPECT_EQ(tensor.device(), Device("GPU:1"));
    EXPECT_EQ(tensor.data(), foreign.data);
    EXPECT_FALSE(tensor.stream().has_value());
    const std::vector<int> elements{1, 2, 3, 4, 5, 6};
    copy(tensor, Tensor::copy_of(std::span(elements), {2, 3}, "GPU:0"));
    EXPECT_EQ(elements_on_gpu<int>(tensor), elements);
    EXPECT_EQ(foreign.num_deletions, 0);
  }
  EXPECT_EQ(foreign.num_deletions, 1);
}

TEST_F(GpuDlpackTest, ItMayFollowTheStreamOfWhoseItIs) {
  Foreign foreign(1);
  const detail::CudaStream stream = make_cuda_stream(1);
  emulated_cuda().block_stream(stream);
  const Tensor tensor = from_dlpack(&foreign.managed, from_cuda(stream));
  EXPECT_EQ(tensor.stream(), from_cuda(stream));
  copy(tensor, Tensor::zeros(DType::INT32, {2, 3}, "GPU:1"));
  EXPECT_FALSE(detail::GpuEvent::record(testing::gpu("GPU:1"), stream).has_completed());
  emulated_cuda().release_stream(stream);
  EXPECT_EQ(elements_on_gpu<int>(tensor), std::vector<int>(6, 0));
}

TEST_F(GpuDlpackTest, WhatLiesElsewhereIsRefusedAndStaysItsOwners) {
  Foreign foreign(1);
  foreign.managed.dl_tensor.device.device_id = 0;
  EXPECT_THAT(thrown<ValueError>([&] { (void)from_dlpack(&foreign.managed); }),
              AllOf(HasSubstr("lies on CUDA device 1"), HasSubstr("CUDA device 0")));
  foreign.managed.dl_tensor.device.device_id = 3;
  EXPECT_THAT(thrown<ValueError>([&] { (void)from_dlpack(&foreign.managed); }),
              HasSubstr("GPU:3: this host has 3 GPUs"));
  foreign.managed.dl_tensor.device.device_id = -1;
  EXPECT_THAT(thrown<ValueError>([&] { (void)from_dlpack(&foreign.managed); }), HasSubstr("-1"));
  foreign.managed.dl_tensor.device.device_id = 1;
  std::vector<int> ours(6);
  foreign.managed.dl_tensor.data = ours.data();
  EXPECT_THAT(thrown<ValueError>([&] { (void)from_dlpack(&foreign.managed); }),
              HasSubstr("ordinary host memory"));
  foreign.managed.dl_tensor.device = {kDLCPU, 0};
  const detail::CudaStream stream = make_cuda_stream(0);
  EXPECT_THAT(thrown<ValueError>([&] { (void)from_dlpack(&foreign.managed, from_cuda(stream)); }),
              AllOf(HasSubstr("CPU:0"), HasSubstr("no stream")));
  EXPECT_EQ(foreign.num_deletions, 0);
}

TEST_F(GpuDlpackTest, PinnedAndManagedMemoryIsTheHosts) {
  for (const DLDeviceType type : {kDLCUDAHost, kDLCUDAManaged}) {
    void* pinned = nullptr;
    ASSERT_EQ(emulated_cuda().malloc_host(&pinned, 24), detail::CudaStatus::SUCCESS);
    Foreign foreign(0);
    foreign.managed.dl_tensor.data = pinned;
    foreign.managed.dl_tensor.device = {type, 0};
    const Tensor tensor = from_dlpack(&foreign.managed);
    EXPECT_EQ(tensor.device(), Device("CPU:0"));
    EXPECT_EQ(tensor.span<int>().size(), 6u);
    EXPECT_EQ(emulated_cuda().free_host(pinned), detail::CudaStatus::SUCCESS);
  }
}

TEST_F(GpuDlpackTest, OursIsLentAsItIs) {
  const std::vector<float> elements{1, 2, 3, 4, 5, 6};
  Tensor tensor = Tensor::copy_of(std::span(elements), {3, 2}, "GPU:2");
  void* const data = tensor.data();
  DLManagedTensorVersioned* const lent = to_dlpack_versioned(tensor.as_read_only());
  tensor = Tensor();
  EXPECT_EQ(lent->dl_tensor.device.device_type, kDLCUDA);
  EXPECT_EQ(lent->dl_tensor.device.device_id, 2);
  EXPECT_EQ(lent->dl_tensor.data, data);
  EXPECT_EQ(lent->dl_tensor.strides[0], 2);
  const Tensor back = from_dlpack(lent);
  EXPECT_TRUE(back.is_read_only());
  EXPECT_EQ(back.device(), Device("GPU:2"));
  EXPECT_EQ(elements_on_gpu<float>(back), elements);
  emulated_cuda().calls().clear();
}

}  // namespace
}  // namespace crossdevice
