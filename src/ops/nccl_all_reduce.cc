// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/nccl_all_reduce.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/collective/nccl_reduce.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/device/gpu_device.h"

#include "ops/detail/nccl_fallback.h"

namespace crossdevice {
namespace {

/// The engine, or why there is none.
std::unique_ptr<NcclReducer> make_reducer(const Devices& devices, std::string& reason) {
  reason = detail::reason_against_nccl(devices);
  if (!reason.empty()) return nullptr;
  try {
    return std::make_unique<NcclReducer>(devices);
  } catch (const UnavailableError& error) {
    reason = error.what();
    return nullptr;
  }
}

}  // namespace

NcclAllReduce::NcclAllReduce(int num_packs) : AllReduceCrossDeviceOps(num_packs) {}
NcclAllReduce::~NcclAllReduce() = default;

std::size_t NcclAllReduce::first_group(std::size_t /*num_replicas*/) const { return 0; }

void NcclAllReduce::prepare(const PerReplica& value, const CommunicationOptions& /*options*/) {
  const Devices& devices = value.devices();
  if (find(devices) != nullptr) return;
  const std::span<const Tensor> tensors = value.values();
  if (std::any_of(tensors.begin(), tensors.end(),
                  [](const Tensor& tensor) { return detail::is_captured(tensor); })) {
    throw FailedPreconditionError(
        fmt::format("NcclAllReduce over {}: its first operation there makes communicators, which "
                    "cannot be captured into a graph; run the operation once before the capture",
                    devices.to_string()));
  }
  std::string reason;
  std::unique_ptr<NcclReducer> reducer = make_reducer(devices, reason);
  if (reducer == nullptr) {
    detail::announce_nccl_fallback("NcclAllReduce", devices, reason);
  } else {
    const std::string message =
        fmt::format("NcclAllReduce over {}: nccl, which serves all of them", devices.to_string());
    log_once(message, LogSeverity::INFO, message);
  }
  engines_.push_back({devices, std::move(reducer)});
}

NcclReducer* NcclAllReduce::nccl_reducer(const Devices& devices) {
  const Engine* const engine = find(devices);
  return engine == nullptr ? nullptr : engine->reducer.get();
}

const NcclAllReduce::Engine* NcclAllReduce::find(const Devices& devices) const {
  for (const Engine& engine : engines_) {
    if (engine.devices == devices) return &engine;
  }
  return nullptr;
}

}  // namespace crossdevice
