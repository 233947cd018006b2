// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/nccl_engines.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/device/gpu_device.h"

#include "ops/detail/nccl_fallback.h"

namespace crossdevice::detail {
namespace {

/// The engine, or why there is none.
std::unique_ptr<NcclReducer> make_reducer(const Devices& devices, std::string& reason) {
  reason = reason_against_nccl(devices);
  if (!reason.empty()) return nullptr;
  try {
    return std::make_unique<NcclReducer>(devices);
  } catch (const UnavailableError& error) {
    reason = error.what();
  } catch (const InternalError& error) {
    reason = error.what();
  }
  // What is thrown: one that comes to no end in time, and an abort that has not come back. NCCL holds the GPUs then, and our kernels are not to wait behind it.
  return nullptr;
}

}  // namespace

const NcclEngines::Engine* NcclEngines::engine_of(const Devices& devices) const {
  for (const Engine& engine : engines_) {
    if (engine.devices == devices) return &engine;
  }
  return nullptr;
}

NcclReducer* NcclEngines::find(const Devices& devices) const {
  const Engine* const engine = engine_of(devices);
  return engine == nullptr ? nullptr : engine->reducer.get();
}

NcclReducer* NcclEngines::find_or_make(const PerReplica& value) {
  const Devices& devices = value.devices();
  const std::span<const Tensor> tensors = value.values();
  if (engine_of(devices) == nullptr &&
      std::any_of(tensors.begin(), tensors.end(),
                  [](const Tensor& tensor) { return is_captured(tensor); })) {
    throw FailedPreconditionError(
        fmt::format("{} over {}: its first operation there makes communicators, which "
                    "cannot be captured into a graph; run the operation once before the capture",
                    who_, devices.to_string()));
  }
  return find_or_make(devices);
}

NcclReducer* NcclEngines::find_or_make(const Devices& devices) {
  if (const Engine* const engine = engine_of(devices)) return engine->reducer.get();
  std::string reason;
  std::unique_ptr<NcclReducer> reducer = make_reducer(devices, reason);
  if (reducer == nullptr) {
    announce_nccl_fallback(who_, devices, reason,
                           devices.all_host() ? "the host reduces" : instead_);
  } else {
    const std::string message =
        fmt::format("{} over {}: nccl, which serves all of them", who_, devices.to_string());
    log_once(message, LogSeverity::INFO, message);
  }
  engines_.push_back({devices, std::move(reducer)});
  return engines_.back().reducer.get();
}

NcclReducer* NcclEngines::serving(ReduceOp op, const PerReplica& value) {
  (void)find_or_make(value);  // refuses what is captured
  return serving(op, value.dtype(), value.devices());
}

NcclReducer* NcclEngines::serving(ReduceOp op, DType dtype, const Devices& devices) {
  NcclReducer* const reducer = find_or_make(devices);
  if (reducer == nullptr || reducer->can_reduce(op, dtype)) return reducer;
  const std::pair reduction(op, dtype);
  if (std::ranges::find(announced_, reduction) == announced_.end()) {
    announce_nccl_fallback(who_, devices,
                           fmt::format("NCCL has no {} of {} with the arithmetic of this library",
                                       to_string(op), to_string(dtype)),
                           instead_);
    announced_.push_back(reduction);
  }
  return nullptr;
}

}  // namespace crossdevice::detail
