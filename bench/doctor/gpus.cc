// SPDX-License-Identifier: Apache-2.0
#include "doctor/gpus.h"

#include <set>

#include <fmt/format.h>

#include "crossdevice/device/gpu_device.h"

namespace crossdevice::doctor {

std::vector<Device> one_device_of_each_gpu() {
  std::vector<Device> devices;
  std::set<int> ordinals;
  for (int i = 0; i < num_gpus(); ++i) {
    const Device device(fmt::format("GPU:{}", i));
    if (ordinals.insert(detail::GpuDevice::of(device).ordinal()).second) devices.push_back(device);
  }
  return devices;
}

}  // namespace crossdevice::doctor
