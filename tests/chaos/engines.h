// SPDX-License-Identifier: Apache-2.0
/// One way to make calls, over whatever communicates.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/device/device.h"

#include "chaos/call_memory.h"
#include "chaos/plan.h"

namespace crossdevice::chaos {

/// How a worker gives up in a call.
struct GivingUp {
  std::chrono::microseconds after{};
  /// Instead of that time, of who does it in another thread; empty: not.
  std::function<void()> await_moment{};
  bool in_hook = false;  ///< of ops: a hook of the program's own throws
  std::string text{};    ///< what the others are to hear
  /// Hears of it just before; on any thread.
  std::function<void()> on_giving_up{};
};

class CallMaker {
 public:
  CallMaker() = default;
  virtual ~CallMaker() = default;
  CallMaker(const CallMaker&) = delete;
  CallMaker& operator=(const CallMaker&) = delete;

  /// Throws what the call throws.
  virtual void make(CallMemory& memory, double timeout_seconds) = 0;
  /// Gives up in the middle of something, so that the others hear of `text`; may throw.
  virtual void give_up(const std::string& text) = 0;
  /// The same while the call is under way: another thread does it; or of the replicas of a strategy the first one, whereas the others make the call; or a hook.
  virtual void make_and_give_up(CallMemory& memory, double timeout_seconds, const GivingUp& how);
};

/// Each worker's.
[[nodiscard]] Devices devices_of(const Plan& plan);
/// Collective. Throws what the constructors throw: `devices` are made before, while nothing is exhausted.
[[nodiscard]] std::unique_ptr<CallMaker> make_call_maker(const Plan& plan, const Devices& devices,
                                                         const std::shared_ptr<Cluster>& cluster);

}  // namespace crossdevice::chaos
