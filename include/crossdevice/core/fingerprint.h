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
    // The finaliser of MurmurHash3, over a running sum.
    value_ += value + 0x9e3779b97f4a7c15U;
    value_ = (value_ ^ (value_ >> 33U)) * 0xff51afd7ed558ccdU;
    value_ = (value_ ^ (value_ >> 33U)) * 0xc4ceb9fe1a85ec53U;
    value_ ^= value_ >> 33U;
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0;
};

}  // namespace crossdevice
