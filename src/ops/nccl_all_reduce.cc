// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/nccl_all_reduce.h"

#include <string>

#include <fmt/format.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"

namespace crossdevice {
namespace {

/// Why NCCL cannot reduce over these devices. (This version of the library has no GPU back-end, so there always is a reason.)
std::string reason_against_nccl(const Devices& devices) {
  if (devices.all_host()) return "NCCL reduces on GPUs, these are host devices";
  return "this version of the library has no GPU back-end";
}

}  // namespace

std::size_t NcclAllReduce::first_group(std::size_t /*num_replicas*/) const { return 0; }

void NcclAllReduce::prepare(const Devices& devices, const CommunicationOptions& /*options*/) {
  const bool strict = environment().strict;
  if (!strict && announced_ == devices) return;
  announced_ = devices;
  const std::string reason = reason_against_nccl(devices);
  const std::string message = fmt::format("NcclAllReduce over {}: {}", devices.to_string(), reason);
  if (strict) throw FailedPreconditionError(message + " (CROSSDEVICE_STRICT=1)");
  log_once("NcclAllReduce: " + reason, LogSeverity::WARNING,
           message + "; the host reduces instead");
}

}  // namespace crossdevice
