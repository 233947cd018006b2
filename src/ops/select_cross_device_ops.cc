// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/select_cross_device_ops.h"

#include <string>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

namespace crossdevice {

std::shared_ptr<CrossDeviceOps> select_cross_device_ops(const Devices& devices) {
  if (devices.empty()) throw ValueError("select_cross_device_ops needs at least one device");
  bool any_host = false;
  for (const Device& device : devices) {
    device.require_present();
    any_host |= device.is_host();
  }
  const auto announce = [&devices](const char* choice, const char* reason) {
    const std::string message = fmt::format("{} for {}: {}", choice, devices.to_string(), reason);
    log_once(message, LogSeverity::INFO, message);
  };
  if (any_host) {
    announce("ReductionToOneDevice", "not all of them are GPUs");
    return std::make_shared<ReductionToOneDevice>();
  }
  announce("NcclAllReduce(num_packs=1)", "all of them are GPUs");
  return std::make_shared<NcclAllReduce>(1);
}

}  // namespace crossdevice
