// SPDX-License-Identifier: Apache-2.0
/// The operations that crossdevice-bench measures, and whether they overwrite their inputs.
#pragma once

#include <cstdint>
#include <string_view>

namespace crossdevice::bench {

enum class Collective : std::uint8_t { ALL_REDUCE, BATCH_REDUCE, REDUCE, BROADCAST, GATHER };

inline constexpr Collective kAllCollectives[] = {Collective::ALL_REDUCE, Collective::BATCH_REDUCE,
                                                 Collective::REDUCE, Collective::BROADCAST,
                                                 Collective::GATHER};

/// What --op calls it.
[[nodiscard]] constexpr std::string_view to_string(Collective collective) {
  switch (collective) {
    case Collective::ALL_REDUCE:
      return "all_reduce";
    case Collective::BATCH_REDUCE:
      return "batch_reduce";
    case Collective::REDUCE:
      return "reduce";
    case Collective::BROADCAST:
      return "broadcast";
    case Collective::GATHER:
      return "gather";
  }
  return "";  // unreachable: every enumerator returns above
}

/// Whether it has one device that alone receives or sends.
[[nodiscard]] constexpr bool has_root(Collective collective) {
  switch (collective) {
    case Collective::ALL_REDUCE:
    case Collective::BATCH_REDUCE:
      return false;
    case Collective::REDUCE:
    case Collective::BROADCAST:
    case Collective::GATHER:
      return true;
  }
  return false;  // unreachable
}

[[nodiscard]] constexpr bool reduces(Collective collective) {
  switch (collective) {
    case Collective::ALL_REDUCE:
    case Collective::BATCH_REDUCE:
    case Collective::REDUCE:
      return true;
    case Collective::BROADCAST:
    case Collective::GATHER:
      return false;
  }
  return false;  // unreachable
}

enum class Placement : std::uint8_t { OUT_OF_PLACE, IN_PLACE };

inline constexpr Placement kBothPlacements[] = {Placement::OUT_OF_PLACE, Placement::IN_PLACE};

}  // namespace crossdevice::bench
