// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/nccl_fallback.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/comm/nccl_library.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/device/gpu_device.h"

namespace crossdevice::detail {

std::string reason_against_nccl(const Devices& devices) {
  if (devices.all_host()) return "NCCL reduces on GPUs, these are host devices";
  std::vector<int> ordinals;
  ordinals.reserve(devices.size());
  for (const Device& device : devices) {
    if (device.is_host()) return "NCCL reduces on GPUs, some of these are host devices";
    const int ordinal = GpuDevice::of(device).ordinal();
    if (std::find(ordinals.begin(), ordinals.end(), ordinal) != ordinals.end()) {
      return fmt::format("several of these are on GPU {}, and NCCL takes each GPU once", ordinal);
    }
    ordinals.push_back(ordinal);
  }
  return nccl_library().reason_against;
}

void announce_nccl_fallback(std::string_view who, const Devices& devices, const std::string& reason,
                            std::string_view instead) {
  const std::string message = fmt::format("{} over {}: {}", who, devices.to_string(), reason);
  if (environment().strict) throw FailedPreconditionError(message + " (CROSSDEVICE_STRICT=1)");
  log_once(fmt::format("NCCL: {}; {}", reason, instead), LogSeverity::WARNING,
           fmt::format("{}; {} instead", message, instead));
}

void announce_nccl_fallback(std::string_view who, const Devices& devices,
                            const std::string& reason) {
  announce_nccl_fallback(
      who, devices, reason,
      devices.all_host() ? "the host reduces" : "the library's own kernels reduce");
}

void announce_nccl_fallback(std::string_view who, const Devices& devices) {
  const std::string reason = reason_against_nccl(devices);
  if (!reason.empty()) announce_nccl_fallback(who, devices, reason);
}

}  // namespace crossdevice::detail
