// SPDX-License-Identifier: Apache-2.0
/// What happens to the link of a plan's worker, and when it is over.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "chaos/link_relay.h"
#include "chaos/link_traffic.h"
#include "chaos/plan.h"

namespace crossdevice::chaos {

/// What the plan's fault makes of a link; nothing where it parts two workers whose links are well.
[[nodiscard]] LinkPolicy policy_of(const Plan& plan);

class LinkTrouble {
 public:
  using Time = std::chrono::steady_clock::time_point;

  LinkTrouble(const Plan& plan, LinkRelay& relay) : plan_(plan), relay_(relay) {}

  /// The phase has begun: the trouble does after the plan's delay, which may be none.
  void begin(Time now);
  /// `have_gone_on`: the others need the worker no more.
  void look(Time now, bool have_gone_on);
  /// When to look again; nothing: whenever something happens.
  [[nodiscard]] std::optional<Time> next() const;
  /// What has come to the link in that time, and what has become of it on any link: others are well.
  [[nodiscard]] LinkCounts counts();

 private:
  enum class State : std::uint8_t { NOT_YET, PENDING, TROUBLED, OVER };

  void set_trouble(bool is_there);
  [[nodiscard]] LinkCounts counts_until_now();

  const Plan& plan_;
  LinkRelay& relay_;
  State state_ = State::NOT_YET;
  Time when_{};  // of what comes next
  LinkCounts before_{};
  LinkCounts counts_{};
};

}  // namespace crossdevice::chaos
