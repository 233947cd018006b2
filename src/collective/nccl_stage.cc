// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/nccl_stage.h"

#include "crossdevice/device/gpu_event.h"
#include "crossdevice/device/gpu_platform.h"

namespace crossdevice::detail {

NcclStage::NcclStage(const Devices& devices) {
  sides_.reserve(devices.size());
  for (const Device& name : devices) {
    sides_.push_back({.name = name, .device = &GpuDevice::of(name), .buffers = {}});
  }
  try {
    for (Side& side : sides_) {
      CudaApi& cuda = side.device->cuda();
      const CurrentCudaDevice current(cuda, side.device->ordinal());
      require_cuda(cuda, cuda.stream_create(&side.stream), "cudaStreamCreateWithPriority");
    }
  } catch (...) {
    end_streams();  // of an object that does not come to be, nobody calls the destructor
    throw;
  }
}

NcclStage::~NcclStage() {
  if (are_gpus_closed()) return;
  release();
  end_streams();
}

void NcclStage::end_streams() noexcept {
  for (Side& side : sides_) {
    if (side.stream != nullptr) (void)side.device->cuda().stream_destroy(side.stream);
  }
}

void NcclStage::release() noexcept {
  size_bytes_ = 0;
  for (Side& side : sides_) side.buffers = {};  // freed in the order of the stage's stream
}

void NcclStage::require_bytes(std::size_t size_bytes) {
  if (size_bytes <= size_bytes_) return;
  // The old buffers go first, on all devices: kept until the new ones are there, they would be what these lack room for. So a failure leaves none at all, and the
  // next call makes its own.
  release();
  try {
    for (Side& side : sides_) fill(side, size_bytes);
  } catch (...) {
    release();
    throw;
  }
  size_bytes_ = size_bytes;
}

void NcclStage::fill(Side& side, std::size_t size_bytes) {
  const CurrentCudaDevice current(side.device->cuda(), side.device->ordinal());
  for (Tensor& buffer : side.buffers) {
    buffer = Tensor::empty(DType::UINT8, Shape{size_bytes}, side.name, from_cuda(side.stream));
    // NCCL also adds up what lies between the pieces: nobody reads it, but it is not to be uninitialised.
    require_cuda(side.device->cuda(),
                 side.device->cuda().memset_async(buffer.data(), 0, size_bytes, side.stream),
                 "cudaMemsetAsync");
  }
}

void NcclStage::wait_for_memory(const Deadline& deadline) const {
  for (const Side& side : sides_) GpuEvent::record(*side.device, side.stream).wait(deadline);
}

}  // namespace crossdevice::detail
