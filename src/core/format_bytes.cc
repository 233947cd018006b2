// SPDX-License-Identifier: Apache-2.0
// Sizes in bytes as people read them, in integers only: neither rounding modes nor locales matter.
#include "crossdevice/core/format_bytes.h"

#include <cstdint>

#include <fmt/format.h>

namespace crossdevice {

std::string format_bytes(std::size_t size_bytes) {
  if (size_bytes < 1024)
    return fmt::format("{} {}", size_bytes, size_bytes == 1 ? "byte" : "bytes");
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t i = 0;
  std::uint64_t unit = 1024;
  while (size_bytes / unit >= 1024) {
    unit *= 1024;
    ++i;
  }
  const std::uint64_t whole = size_bytes / unit;
  const std::uint64_t rest = size_bytes % unit;
  if (rest == 0) return fmt::format("{} {}", whole, kUnits[i]);
  const std::uint64_t tenths = whole * 10 + (rest * 10 + unit / 2) / unit;  // 10 EiB still fit
  if (tenths == 10240) return fmt::format("1.0 {}", kUnits[i + 1]);  // never at EiB: 16 is the end
  return fmt::format("{}.{} {}", tenths / 10, tenths % 10, kUnits[i]);
}

}  // namespace crossdevice
