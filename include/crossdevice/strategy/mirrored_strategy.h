// SPDX-License-Identifier: Apache-2.0
/// Replicas on several devices of this process. TF counterpart: tf.distribute.MirroredStrategy.
#pragma once

#include <memory>

#include "crossdevice/core/export.h"
#include "crossdevice/device/device.h"
#include "crossdevice/ops/communication_options.h"
#include "crossdevice/ops/cross_device_ops.h"
#include "crossdevice/strategy/strategy.h"

namespace crossdevice {

struct MirroredStrategyOptions {
  /// Empty: every GPU of this process, else CPU:0. (64 logical host devices exist by default; name those that you want.)
  Devices devices{};
  /// Null: select_cross_device_ops(devices).
  std::shared_ptr<CrossDeviceOps> cross_device_ops{};
  /// What the options of each call are merged into.
  CommunicationOptions communication_options{};
};

/// Errors   ValueError: a device that is absent or named twice; invalid options.
/// TF       the chosen ops are used for every dtype and device.
class CROSSDEVICE_EXPORT MirroredStrategy : public Strategy {
 public:
  explicit MirroredStrategy(const MirroredStrategyOptions& options = {});
  ~MirroredStrategy() override;
  MirroredStrategy(const MirroredStrategy&) = delete;
  MirroredStrategy& operator=(const MirroredStrategy&) = delete;
};

}  // namespace crossdevice
