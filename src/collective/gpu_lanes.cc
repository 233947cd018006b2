// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/gpu_lanes.h"

#include <algorithm>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/gpu_platform.h"
#include "crossdevice/device/scratch_lease.h"

namespace crossdevice::detail {
void GpuLanes::add(const Tensor& tensor, std::size_t likely) {
  GpuDevice& device = GpuDevice::of(tensor.device());
  const CudaStream stream = gpu_stream_of(tensor);
  GpuLane* lane = likely < lanes_.size() && lanes_[likely].device == &device
                      ? &lanes_[likely]
                      : std::find_if(lanes_.begin(), lanes_.end(), [&device](const GpuLane& each) {
                          return each.device == &device;
                        });
  if (lane == lanes_.end()) {
    lanes_.push_back({.device = &device, .stream = stream, .name = &tensor.device()});
  } else if (lane->stream != stream &&
             std::find(lane->others.begin(), lane->others.end(), stream) == lane->others.end()) {
    lane->others.push_back(stream);
  }
}

void GpuLanes::add(const Tensor& tensor) { add(tensor, 0); }

void GpuLanes::add(std::span<const Tensor> tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) add(tensors[i], i);
}

void GpuLanes::add(std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  add(inputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (i < inputs.size() && outputs[i].is_same(inputs[i])) continue;
    add(outputs[i], i);
  }
}

std::size_t GpuLanes::index_of(const GpuDevice& device) const {
  const GpuLane* const found = std::find_if(
      lanes_.begin(), lanes_.end(), [&](const GpuLane& lane) { return lane.device == &device; });
  if (found == lanes_.end()) {
    throw InternalError(fmt::format("GPU {} takes no part in the operation", device.ordinal()));
  }
  return static_cast<std::size_t>(found - lanes_.begin());
}

const GpuLane& GpuLanes::of(const Tensor& tensor) const {
  return lanes_[index_of(GpuDevice::of(tensor.device()))];
}

Devices GpuLanes::names() const {
  if (lanes_.size() == 1) return *lanes_[0].name;
  const ScratchLease<std::vector<Device>> names;
  names->reserve(lanes_.size());
  for (const GpuLane& lane : lanes_) names->push_back(*lane.name);
  return Devices(std::span<const Device>(*names));
}

bool GpuLanes::is_captured() const {
  std::size_t num_streams = 0;
  std::size_t num_captured = 0;
  for (const GpuLane& lane : lanes_) {
    num_streams += 1 + lane.others.size();
    if (detail::is_captured(*lane.device, lane.stream)) ++num_captured;
    for (const CudaStream other : lane.others) {
      if (detail::is_captured(*lane.device, other)) ++num_captured;
    }
  }
  if (num_captured != 0 && num_captured != num_streams) {
    throw FailedPreconditionError(fmt::format(
        "{} of the operation's {} streams are being captured into a graph; expected all or none: "
        "let the others wait for an event of the captured ones, then they join",
        num_captured, num_streams));
  }
  return num_captured != 0;
}

void GpuLanes::gather_streams() const {
  for (const GpuLane& lane : lanes_) {
    if (lane.others.empty()) continue;
    const CurrentCudaDevice current(lane.device->cuda(), lane.device->ordinal());
    for (const CudaStream other : lane.others) {
      GpuEvent::record(*lane.device, other).hold_back(lane.stream);
    }
  }
}

void GpuLanes::meet() const {
  if (lanes_.size() < 2) return;
  InlineVector<GpuEvent, 8> moments;
  for (const GpuLane& lane : lanes_) {
    moments.push_back(GpuEvent::record(*lane.device, lane.stream));
  }
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    const CurrentCudaDevice current(lanes_[i].device->cuda(), lanes_[i].device->ordinal());
    for (std::size_t j = 0; j < lanes_.size(); ++j) {
      if (i != j) moments[j].hold_back(lanes_[i].stream);
    }
  }
}

void GpuLanes::release_streams() const {
  for (const GpuLane& lane : lanes_) {
    if (lane.others.empty()) continue;
    const CurrentCudaDevice current(lane.device->cuda(), lane.device->ordinal());
    const GpuEvent moment = GpuEvent::record(*lane.device, lane.stream);
    for (const CudaStream other : lane.others) moment.hold_back(other);
  }
}

}  // namespace crossdevice::detail
