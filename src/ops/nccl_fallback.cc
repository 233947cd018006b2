// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/nccl_fallback.h"

#include <string>

#include <fmt/format.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"

namespace crossdevice::detail {
namespace {

/// Why NCCL cannot reduce over these devices. (This version of the library has no GPU back-end, so there always is a reason.)
const char* reason_against_nccl(const Devices& devices) {
  if (devices.all_host()) return "NCCL reduces on GPUs, these are host devices";
  return "this version of the library has no GPU back-end";
}

}  // namespace

void announce_nccl_fallback(std::string_view who, const Devices& devices) {
  const std::string reason = reason_against_nccl(devices);
  const std::string message = fmt::format("{} over {}: {}", who, devices.to_string(), reason);
  if (environment().strict) throw FailedPreconditionError(message + " (CROSSDEVICE_STRICT=1)");
  log_once("NCCL: " + reason, LogSeverity::WARNING, message + "; the host reduces instead");
}

}  // namespace crossdevice::detail
