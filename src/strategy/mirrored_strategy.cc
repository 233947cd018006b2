// SPDX-License-Identifier: Apache-2.0
// The devices of one process as replicas.
#include "crossdevice/strategy/mirrored_strategy.h"

#include "crossdevice/comm/default_devices.h"
#include "crossdevice/core/error.h"
#include "crossdevice/ops/select_cross_device_ops.h"

namespace crossdevice {

namespace {

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
