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
/// Memory   no copy. kDLCPU, kDLCUDAHost and kDLCUDAManaged become CPU:0, kDLCUDA becomes GPU:<device_id>. The READ_ONLY flag is kept.
///          Null strides and compact row-major strides are accepted (dimensions of size 1 may have any stride).
/// Errors   ValueError: null, other strides, several lanes, a type without DType, another or an absent device, an unaligned pointer, a
///          version with another major number. On an error nothing is taken over, the caller still owns it - but for another major
///          version, where the deleter is called, as DLPack asks.
[[nodiscard]] CROSSDEVICE_EXPORT Tensor from_dlpack(DLManagedTensor* managed);
[[nodiscard]] CROSSDEVICE_EXPORT Tensor from_dlpack(DLManagedTensorVersioned* managed);

/// Lends a tensor out; the memory lives until the struct's deleter is called, on any thread. Strides are always given, the
/// byte offset is 0.
///
/// Order    waits until asynchronous operations on a host tensor have ended.
/// Errors   ValueError: the tensor is read-only (the unversioned struct cannot say so), or none.
[[nodiscard]] CROSSDEVICE_EXPORT DLManagedTensor* to_dlpack(const Tensor& tensor);
/// The same with DLPack 1.x's struct, which carries the READ_ONLY flag.
[[nodiscard]] CROSSDEVICE_EXPORT DLManagedTensorVersioned* to_dlpack_versioned(
    const Tensor& tensor);

}  // namespace crossdevice
