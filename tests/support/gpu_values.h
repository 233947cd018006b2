// SPDX-License-Identifier: Apache-2.0
/// Short ways to make values on GPUs and to read them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/device/copy.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/gpu_platform.h"
#include "crossdevice/device/tensor.h"
#include "crossdevice/ops/values.h"

#include "support/gpus_under_test.h"
#include "support/real_gpu.h"
#include "support/reduce_cases.h"
#include "support/values.h"

namespace crossdevice::testing {

inline Device gpu(std::size_t index) { return Device("GPU:" + std::to_string(index)); }

/// GPU:0 .. GPU:n-1.
inline Devices gpus(std::size_t count) {
  std::vector<Device> devices;
  for (std::size_t i = 0; i < count; ++i) devices.push_back(gpu(i));
  return Devices(std::span<const Device>(devices));
}

/// A stream of the application's on GPU:`device`, ended with it.
class GpuStream {
 public:
  explicit GpuStream(int device)
      : gpu_(detail::GpuDevice::of(gpu(static_cast<std::size_t>(device)))) {
    const detail::CurrentCudaDevice current(cuda_, gpu_.ordinal());
    EXPECT_EQ(cuda_.stream_create(&stream_), detail::CudaStatus::SUCCESS);
  }
  ~GpuStream() {
    wait_for_stream(stream_);
    EXPECT_EQ(cuda_.stream_destroy(stream_), detail::CudaStatus::SUCCESS);
  }
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  [[nodiscard]] detail::CudaStream get() const { return stream_; }

 private:
  detail::GpuDevice& gpu_;
  detail::CudaApi& cuda_ = gpu_.cuda();
  detail::CudaStream stream_ = nullptr;
};

/// Component r on GPU:r; `streams` empty: ordered by the GPUs' own streams.
inline PerReplica on_gpus(ReduceCase& values, const std::vector<detail::CudaStream>& streams = {}) {
  std::vector<Tensor> components;
  for (std::size_t r = 0; r < values.memory.size(); ++r) {
    Tensor component = streams.empty() ? Tensor::empty(values.dtype, Shape{values.count}, gpu(r))
                                       : Tensor::empty(values.dtype, Shape{values.count}, gpu(r),
                                                       from_cuda(streams[r]));
    copy(component, values.view(r, "CPU:0"));
    components.push_back(std::move(component));
  }
  return PerReplica(components);
}

/// Every component's bytes, once its stream has made them.
[[nodiscard]] inline ::testing::AssertionResult has_bytes(const DistributedValues& value,
                                                          const std::vector<std::byte>& expected) {
  for (const Tensor& tensor : value.values()) {
    const Tensor here = tensor.device().is_host() ? tensor : copy_to_device(tensor, "CPU:0");
    ::testing::AssertionResult result = has_bytes(here.data(), expected);
    if (!result) return result << " on " << tensor.device().short_name();
  }
  return ::testing::AssertionSuccess();
}

}  // namespace crossdevice::testing
