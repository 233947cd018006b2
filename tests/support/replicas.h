// SPDX-License-Identifier: Apache-2.0
/// Short ways to run replicas in tests: strategies on host devices, what they throw and what they log.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "crossdevice/core/log.h"
#include "crossdevice/ops/reduction_to_one_device.h"
#include "crossdevice/strategy/mirrored_strategy.h"

#include "support/thrown.h"
#include "support/values.h"

namespace crossdevice::testing {

/// Replicas on CPU:0 .. CPU:n-1.
inline MirroredStrategyOptions on_cpus(std::size_t count,
                                       std::shared_ptr<CrossDeviceOps> ops = nullptr) {
  return {.devices = cpus(count), .cross_device_ops = std::move(ops)};
}

/// What each replica's call throws, by replica; the replicas go on afterwards.
template <class Error = std::exception, class F>
std::vector<std::string> thrown_in_replicas(Strategy& strategy, F&& call) {
  return strategy.run(
      [&](ReplicaContext& context) { return thrown<Error>([&] { call(context); }); });
}

/// The messages logged while it lives.
class CapturedLog {
 public:
  CapturedLog() {
    set_log_sink([this](LogSeverity, std::string_view message) {
      const std::lock_guard lock(mutex_);
      messages_.emplace_back(message);
    });
  }
  ~CapturedLog() { set_log_sink({}); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  [[nodiscard]] std::vector<std::string> messages() const {
    const std::lock_guard lock(mutex_);
    return messages_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> messages_;
};

}  // namespace crossdevice::testing
