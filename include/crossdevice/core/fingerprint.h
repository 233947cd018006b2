// SPDX-License-Identifier: Apache-2.0
/// Whether workers mean the same, in one number.
#pragma once

#include <cstdint>

#include "crossdevice/core/export.h"

namespace crossdevice {

/// A number that differs, all but certainly, where what was added differs.
class CROSSDEVICE_EXPORT Fingerprint {
 public:
  void add(std::uint64_t value) {
    // The step of wyhash: one multiplication, whose halves are folded. The rest is off the path from one value to the next.
    const Wide product = Wide{value_ ^ (value * 0xff51afd7ed558ccdU)} * 0x9e3779b97f4a7c15U;
    value_ = static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  __extension__ using Wide = unsigned __int128;

  std::uint64_t value_ = 0xc4ceb9fe1a85ec53U;
};

}  // namespace crossdevice
