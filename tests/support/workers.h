// SPDX-License-Identifier: Apache-2.0
/// Devices and values of several workers in one process.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "crossdevice/device/device.h"
#include "crossdevice/ops/values.h"

#include "support/values.h"

namespace crossdevice::testing {

/// "/job:worker/task:<worker>/CPU:<index>".
inline Device worker_device(std::size_t worker, std::size_t index) {
  return Device("/job:worker/task:" + std::to_string(worker) + "/CPU:" + std::to_string(index));
}

/// "/job:worker/task:0" .. "/job:worker/task:<count - 1>".
inline Devices workers(std::size_t count) {
  std::vector<Device> devices;
  for (std::size_t w = 0; w < count; ++w) devices.push_back(worker_device(w, 0));
  return Devices(std::span<const Device>(devices));
}

/// CPU:0 .. CPU:<per_worker - 1> of every worker, worker after worker.
inline Devices worker_devices(std::size_t num_workers, std::size_t per_worker) {
  std::vector<Device> devices;
  for (std::size_t w = 0; w < num_workers; ++w) {
    for (std::size_t i = 0; i < per_worker; ++i) devices.push_back(worker_device(w, i));
  }
  return Devices(std::span<const Device>(devices));
}

/// Component r is components[r] on devices[r].
template <class T = float>
PerReplica value_on(const Devices& devices, const std::vector<std::vector<T>>& components) {
  std::vector<Tensor> tensors;
  for (std::size_t r = 0; r < components.size(); ++r) {
    tensors.push_back(vector_of(components[r], devices[r]));
  }
  return PerReplica(tensors);
}

}  // namespace crossdevice::testing
