// SPDX-License-Identifier: Apache-2.0
/// CUDA streams between a program and the library: lent, adopted, and made to wait for each other.
///
/// For programs with a CUDA toolkit: this header includes its cuda_runtime_api.h, and calls nothing of it. A plain C++ compiler will do. The other
/// direction, a stream of the program's for a tensor, is from_cuda() in stream.h: Tensor::view(pointer, dtype, shape, "GPU:0", from_cuda(stream)).
#pragma once

#include <type_traits>

#include <cuda_runtime_api.h>

#include "crossdevice/device/device.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/gpu_event.h"
#include "crossdevice/device/gpu_platform.h"
#include "crossdevice/device/stream.h"
#include "crossdevice/device/tensor.h"

namespace crossdevice {

static_assert(std::is_same_v<cudaStream_t, CUstream_st*>, "from_cuda() takes a cudaStream_t");

/// CUDA's number of the GPU that a device lies on: what cudaSetDevice takes. Logical devices of one GPU have the same.
///
/// Errors   ValueError: a host device, or not present.
[[nodiscard]] inline int cuda_device_of(const Device& device) {
  return detail::GpuDevice::of(device).ordinal();
}

/// The library's own stream on a GPU, which its tensors without a stream follow. Lent: never destroy it.
///
/// Errors   ValueError: a host device, or not present.
[[nodiscard]] inline cudaStream_t cuda_stream_of(const Device& device) {
  return detail::GpuDevice::of(device).own_stream();
}

/// The stream that a tensor's memory follows: what runs there runs in order with it. Null where the caller gave the legacy default stream.
///
/// Errors   ValueError: the tensor does not lie on a GPU.
[[nodiscard]] inline cudaStream_t cuda_stream_of(const Tensor& tensor) {
  return detail::gpu_stream_of(tensor);
}

/// What `stream` is given from now on runs after everything that the tensor's stream was given so far: call it before your own kernel reads what the
/// library writes. A null stream means the legacy default stream of the tensor's GPU; any other may be of any GPU.
///
/// Errors   ValueError: the tensor does not lie on a GPU.
/// Threads  any; the current device stays as it was.
inline void stream_wait_for_tensor(cudaStream_t stream, const Tensor& tensor) {
  detail::GpuDevice& gpu = detail::GpuDevice::of(tensor.device());
  const detail::CurrentCudaDevice current(gpu.cuda(), gpu.ordinal());
  detail::GpuEvent::record(gpu, detail::gpu_stream_of(tensor)).hold_back(stream);
}

/// The reverse: what the tensor's stream is given from now on runs after everything that `stream`, of the same GPU, was given so far: call it after
/// your own kernel has written, or still reads, what the library is to use.
///
/// Errors   ValueError: the tensor does not lie on a GPU.
/// Threads  any; the current device stays as it was.
inline void tensor_wait_for_stream(const Tensor& tensor, cudaStream_t stream) {
  detail::GpuDevice& gpu = detail::GpuDevice::of(tensor.device());
  const detail::CurrentCudaDevice current(gpu.cuda(), gpu.ordinal());
  detail::GpuEvent::record(gpu, stream).hold_back(detail::gpu_stream_of(tensor));
}

}  // namespace crossdevice
