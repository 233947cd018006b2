// SPDX-License-Identifier: Apache-2.0
/// What a campaign has counted, and how it says so.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "chaos/effect.h"
#include "chaos/plan.h"

namespace crossdevice::chaos {

struct Tally {
  std::uint64_t runs = 0;
  std::uint64_t violations = 0;
  std::array<std::uint64_t, kNumEffects> effects{};  ///< by Effect

  void add(Effect effect, bool is_violation);
  [[nodiscard]] std::uint64_t of(Effect effect) const {
    return effects[static_cast<std::size_t>(effect)];
  }
  /// Those that came.
  [[nodiscard]] std::uint64_t faults() const { return runs - of(Effect::NOT_COME); }
};

class Tallies {
 public:
  void add(const Plan& plan, Effect effect, bool is_violation);
  [[nodiscard]] const Tally& all() const { return all_; }
  /// By fault and phase, by algorithm and place, by transport.
  [[nodiscard]] std::string tables() const;
  /// What came of all, without the last line.
  [[nodiscard]] std::string summary() const;

 private:
  using Table = std::map<std::string, Tally>;
  Tally all_;
  Table by_phase_;
  Table by_place_;
  Table by_transport_;
};

/// How the workers of a plan talk: "shared memory", "TCP", "TCP in TLS", "UCX"; of several on each host "shared memory and TCP", and the like.
[[nodiscard]] std::string transport_of(const Plan& plan);

}  // namespace crossdevice::chaos
