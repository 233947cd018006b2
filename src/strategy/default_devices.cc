// SPDX-License-Identifier: Apache-2.0
// GPUs shared out among the workers of a machine.
#include "strategy/detail/default_devices.h"

#include <cstddef>
#include <string>
#include <vector>

namespace crossdevice::detail {

Devices default_devices(int local_rank, int num_local_workers) {
  std::vector<Device> gpus;
  gpus.reserve(static_cast<std::size_t>(num_gpus()));
  for (int i = local_rank; i < num_gpus(); i += num_local_workers) {
    gpus.emplace_back("GPU:" + std::to_string(i));
  }
  return gpus.empty() ? Devices{"CPU:0"} : Devices(std::span<const Device>(gpus));
}

}  // namespace crossdevice::detail
