// SPDX-License-Identifier: Apache-2.0
// The devices of one process as replicas.
#include "crossdevice/strategy/mirrored_strategy.h"

#include <string>
#include <vector>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/select_cross_device_ops.h"

namespace crossdevice {

namespace {

Devices default_devices() {
  std::vector<Device> gpus;
  gpus.reserve(static_cast<std::size_t>(num_gpus()));
  for (int i = 0; i < num_gpus(); ++i) gpus.emplace_back("GPU:" + std::to_string(i));
  return gpus.empty() ? Devices{"CPU:0"} : Devices(std::span<const Device>(gpus));
}

detail::StrategyConfiguration configure(const MirroredStrategyOptions& options) {
  options.communication_options.validate();
  detail::StrategyConfiguration configuration;
  configuration.devices = options.devices.empty() ? default_devices() : options.devices;
  for (const Device& device : configuration.devices) device.require_present();
  if (configuration.devices.has_duplicates()) {
    throw ValueError("MirroredStrategy: expected distinct devices, got " +
                     configuration.devices.to_string());
  }
  configuration.cross_device_ops = options.cross_device_ops != nullptr
                                       ? options.cross_device_ops
                                       : select_cross_device_ops(configuration.devices);
  configuration.communication_options = options.communication_options;
  configuration.num_replicas_in_sync = configuration.devices.size();
  return configuration;
}

}  // namespace

MirroredStrategy::MirroredStrategy(const MirroredStrategyOptions& options)
    : Strategy(std::make_shared<StrategyExtended>(configure(options))) {}

MirroredStrategy::~MirroredStrategy() = default;

}  // namespace crossdevice
