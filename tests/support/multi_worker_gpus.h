// SPDX-License-Identifier: Apache-2.0
/// GPUs of several workers in one process, and values there whose sums are exact.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "crossdevice/device/device.h"
#include "crossdevice/ops/values.h"

#include "support/workers.h"

namespace crossdevice::testing {

/// "/job:worker/task:<worker>/GPU:<index>"; the index counts the GPUs of the process.
inline Device worker_gpu(std::size_t worker, std::size_t index) {
  return Device("/job:worker/task:" + std::to_string(worker) + "/GPU:" + std::to_string(index));
}

/// `per_worker` GPUs of every worker, each GPU once.
inline Devices worker_gpus(std::size_t num_workers, std::size_t per_worker) {
  std::vector<Device> devices;
  for (std::size_t w = 0; w < num_workers; ++w) {
    for (std::size_t i = 0; i < per_worker; ++i) {
      devices.push_back(worker_gpu(w, w * per_worker + i));
    }
  }
  return Devices(std::span<const Device>(devices));
}

/// Small integers that differ by replica, place and `seed`.
inline PerReplica exact_value(const Devices& devices, std::size_t count, std::size_t seed) {
  std::vector<std::vector<float>> components;
  for (std::size_t r = 0; r < devices.size(); ++r) {
    std::vector<float> component;
    for (std::size_t k = 0; k < count; ++k) {
      component.push_back(static_cast<float>(1 + (seed * 31 + k * 7 + r * 13) % 64));
    }
    components.push_back(std::move(component));
  }
  return value_on(devices, components);
}

}  // namespace crossdevice::testing
