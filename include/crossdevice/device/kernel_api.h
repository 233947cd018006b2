// SPDX-License-Identifier: Apache-2.0
/// The launchers of our CUDA kernels, as a table: the real one launches them, the emulation runs the host's loops in stream order.
///
/// The arithmetic is that of reduce_kernel.h, bit by bit: host and GPU reduce the same values in the same order to the same result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/export.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/cuda_api.h"

namespace crossdevice::detail {

/// A run of elements that goes from one place to another.
struct CopyRange {
  const void* source = nullptr;
  void* destination = nullptr;
  std::size_t num_elements = 0;
};

/// Packs and unpacks: many ranges, one launch (one for each kMaxCopyRanges of them). The ranges are copied into the launch, so that it may be captured.
///
/// Shapes   sources of source_dtype, destinations of destination_dtype: the same, or both floating (float8 to float64). Any alignment that the
///          dtype admits; 16 bytes on both sides are the fast case.
/// Memory   ranges overlap nothing of the launch, but a range whose two ends are the same memory, of equal dtypes, is divided where it lies.
/// Arithmetic  divisor 1: copied bit by bit, or converted with one rounding (from float64 to a small type too: not by way of float32). Else (floating
///          and complex dtypes): divided in the type that divide_elements divides the source's dtype in, then rounded once to the destination's dtype. A NaN
///          that is converted or divided becomes the quiet one without sign and payload; what is too large for float8_e4m3 becomes that NaN too.
struct CopyLaunch {
  std::span<const CopyRange> ranges{};
  DType source_dtype = DType::FLOAT32;
  DType destination_dtype = DType::FLOAT32;
  double divisor = 1;
  CudaStream stream = nullptr;
};
inline constexpr std::size_t kMaxCopyRanges = 1000;

/// One fused pass: outputs[j][i] = op over k of inputs[k][i], for i < num_elements: ReducePass on the stream's device.
///
/// Memory   pointers that the device reaches: its own, its peers', pinned host memory. An output may be exactly one of the inputs, where the result
///          has their dtype.
/// Cost     (N + M) S bytes, in one launch for up to kMaxReduceBuffers inputs and as many outputs; there are never more.
struct ReduceLaunch {
  ReduceOp op = ReduceOp::SUM;
  DType dtype = DType::FLOAT32;
  std::span<const void* const> inputs{};
  std::span<void* const> outputs{};
  std::size_t first_group = 0;
  std::size_t num_elements = 0;
  CudaStream stream = nullptr;
};
inline constexpr std::size_t kMaxReduceBuffers = 64;

/// Many tensors, each reduced as by ReduceLaunch.
///
/// Shapes   every tensor has num_inputs inputs and num_outputs outputs; their sizes may differ.
/// Memory   a tensor's buffers overlap nothing of another's. The lists are copied into the launch, so that it may be captured.
/// Cost     a launch for each 56 tensors of up to eight buffers (448 pointers). A tensor of more than 16 MiB, or whose buffers are not all as far from a
///          multiple of 16 bytes, has one of its own.
struct ManyReduceLaunch {
  ReduceOp op = ReduceOp::SUM;
  DType dtype = DType::FLOAT32;
  std::size_t num_inputs = 0;
  std::size_t num_outputs = 0;
  std::span<void* const> buffers{};  ///< of each tensor its inputs, then its outputs
  std::span<const std::size_t> num_elements{};
  std::size_t first_group = 0;
  CudaStream stream = nullptr;
};

/// Order    enqueued on the launch's stream; the current device is the stream's.
/// Errors   as status codes: of the launch, or an earlier asynchronous one. Arguments are checked above.
/// Threads  any.
class CROSSDEVICE_EXPORT KernelApi {
 public:
  KernelApi() = default;
  KernelApi(const KernelApi&) = delete;
  KernelApi& operator=(const KernelApi&) = delete;
  virtual ~KernelApi() = default;

  virtual CudaStatus copy_ranges(const CopyLaunch& launch) = 0;
  virtual CudaStatus reduce(const ReduceLaunch& launch) = 0;
  /// `has_launched`: whether anything was launched, also where a later launch is refused.
  virtual CudaStatus reduce_many(const ManyReduceLaunch& launch, bool& has_launched) = 0;
};

}  // namespace crossdevice::detail
