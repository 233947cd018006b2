// SPDX-License-Identifier: Apache-2.0
/// Tensors from and to other libraries, without a copy, through DLPack's C structs.
///
/// This header only names the structs. Their definitions come from the program's own <dlpack/dlpack.h> or from
/// interop_dlpack.h.
#pragma once

#include "crossdevice/core/export.h"
#include "crossdevice/device/stream.h"
#include "crossdevice/device/tensor.h"

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace crossdevice {

/// Takes over a foreign tensor; its deleter runs when the last handle on the memory dies.
///
/// Order    CUDA memory follows `stream`, that of the library it comes from; without one, the library's own stream on that GPU, which then has to wait for
///          what is under way there (tensor_wait_for_stream in interop_cuda.h). DLPack's struct says nothing about streams.
/// Memory   no copy. kDLCPU, kDLCUDAHost and kDLCUDAManaged become CPU:0, kDLCUDA becomes GPU:device_id (of logical GPUs, the first on that GPU). The
///          READ_ONLY flag is kept. Null strides and compact row-major strides are accepted (dimensions of size 1 may have any stride). The deleter is
///          called at once, also when a GPU has still to do what was enqueued for the memory: with `stream` given, whose memory it is reuses it in order.
/// Errors   ValueError: null, other strides, several lanes, a type without DType, another or an absent device, an unaligned pointer,
///          CUDA memory that does not lie where it says, a stream for host memory, a version with another major number. On an error nothing is taken over, the caller still owns it - but for another major
///          version, where the deleter is called, as DLPack asks.
[[nodiscard]] CROSSDEVICE_EXPORT Tensor from_dlpack(DLManagedTensor* managed);
[[nodiscard]] CROSSDEVICE_EXPORT Tensor from_dlpack(DLManagedTensorVersioned* managed);
[[nodiscard]] CROSSDEVICE_EXPORT Tensor from_dlpack(DLManagedTensor* managed, StreamView stream);
[[nodiscard]] CROSSDEVICE_EXPORT Tensor from_dlpack(DLManagedTensorVersioned* managed,
                                                    StreamView stream);

/// Lends a tensor out; the memory lives until the struct's deleter is called, on any thread. Strides are always given, the
/// byte offset is 0.
///
/// Order    waits until asynchronous operations on a host tensor have ended. Who takes a GPU's makes its own stream wait for the tensor's
///          (stream_wait_for_tensor in interop_cuda.h), and that for its own when it gives the memory back.
/// Errors   ValueError: the tensor is read-only (the unversioned struct cannot say so), or none.
[[nodiscard]] CROSSDEVICE_EXPORT DLManagedTensor* to_dlpack(const Tensor& tensor);
/// The same with DLPack 1.x's struct, which carries the READ_ONLY flag.
[[nodiscard]] CROSSDEVICE_EXPORT DLManagedTensorVersioned* to_dlpack_versioned(
    const Tensor& tensor);

}  // namespace crossdevice
