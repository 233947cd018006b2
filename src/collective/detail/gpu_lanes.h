// SPDX-License-Identifier: Apache-2.0
/// The GPUs of an operation, and on each the one stream on which it runs.
#pragma once

#include <cstddef>
#include <span>

#include "crossdevice/core/inline_vector.h"
#include "crossdevice/device/cuda_api.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/gpu_event.h"
#include "crossdevice/device/tensor.h"

namespace crossdevice::detail {

/// A physical GPU. It works on the stream of the first of its tensors; the streams of the others come before and after it.
struct GpuLane {
  GpuDevice* device = nullptr;
  CudaStream stream = nullptr;
  const Device* name =
      nullptr;  ///< one of its names: that of the first tensor, which outlives the lane
  InlineVector<CudaStream, 7> others{};  // a GPU is rarely more than eight devices
};

/// Why streams that wait for each other here cannot lock up: each wait is for an event that was recorded, in the program's order, before the
/// wait was enqueued, so what a stream waits for never stands behind the wait.
///
/// Threads  one.
class GpuLanes {
 public:
  /// The tensor lies on a GPU, and outlives this.
  void add(const Tensor& tensor);
  void add(std::span<const Tensor> tensors);
  /// Of a reduction: an output that is the input of its place, as all are in place, is not looked at again.
  void add(std::span<const Tensor> inputs, std::span<const Tensor> outputs);

  [[nodiscard]] std::size_t size() const { return lanes_.size(); }
  [[nodiscard]] const GpuLane& operator[](std::size_t i) const { return lanes_[i]; }
  /// That of a device one of whose tensors was added.
  [[nodiscard]] std::size_t index_of(const GpuDevice& device) const;
  [[nodiscard]] const GpuLane& of(const Tensor& tensor) const;

  /// One name of each GPU, in order.
  [[nodiscard]] Devices names() const;

  /// Whether the streams are being captured into a graph.
  ///
  /// Errors   FailedPreconditionError: some are and some are not, or a capture was invalidated.
  [[nodiscard]] bool is_captured() const;
  /// What was enqueued on the other streams of each device comes before what is enqueued on its lane from now on.
  void gather_streams() const;
  /// What was enqueued on any lane comes before what is enqueued on every lane from now on.
  void meet() const;
  /// What was enqueued on the lanes comes before what is enqueued on their devices' other streams from now on.
  void release_streams() const;

 private:
  /// `likely`: the lane that it may well be, as lists of tensors are mostly on the same devices in the same order.
  void add(const Tensor& tensor, std::size_t likely);

  InlineVector<GpuLane, 8> lanes_;
};

}  // namespace crossdevice::detail
