// SPDX-License-Identifier: Apache-2.0
/// Parses and prints sizes with binary multiples.
#include "support/byte_size.h"

#include <cctype>
#include <cmath>
#include <locale>
#include <sstream>

#include <fmt/core.h>

#include "support/program.h"

namespace crossdevice::programs {

namespace {

/// The exponent of two of a suffix such as "M", "MB" or "MiB"; -1 if it is none.
int suffix_shift(std::string_view suffix) {
  if (suffix.empty() || suffix == "B" || suffix == "b") return 0;
  const std::string_view rest = suffix.substr(1);
  if (!rest.empty() && rest != "B" && rest != "b" && rest != "iB" && rest != "ib") return -1;
  switch (suffix.front()) {
    case 'K':
    case 'k':
      return 10;
    case 'M':
    case 'm':
      return 20;
    case 'G':
    case 'g':
      return 30;
    case 'T':
    case 't':
      return 40;
    default:
      return -1;
  }
}

}  // namespace

std::size_t parse_byte_size(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    throw ArgumentError(fmt::format("'{}' is not a size: {}", text, why));
  };
  std::size_t digits = 0;
  while (digits < text.size() &&
         (std::isdigit(static_cast<unsigned char>(text[digits])) != 0 || text[digits] == '.')) {
    ++digits;
  }
  if (digits == 0) refuse("expected a number, then nothing or K, M, G, T");
  std::istringstream in{std::string(text.substr(0, digits))};
  in.imbue(std::locale::classic());
  double number = 0;
  if (!(in >> number) || in.peek() != std::istringstream::traits_type::eof()) {
    refuse("expected a number, then nothing or K, M, G, T");
  }
  const int shift = suffix_shift(text.substr(digits));
  if (shift < 0) refuse(fmt::format("unknown unit '{}'", text.substr(digits)));
  const double size_bytes = std::ldexp(number, shift);
  if (size_bytes >= std::ldexp(1.0, 63)) refuse("too large");
  return static_cast<std::size_t>(size_bytes);
}

std::string format_byte_size(std::size_t size_bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double number = static_cast<double>(size_bytes);
  std::size_t unit = 0;
  while (number >= 1024 && unit + 1 < std::size(kUnits)) {
    number /= 1024;
    ++unit;
  }
  const double rounded = std::round(number * 10) / 10;
  const bool whole = rounded == std::floor(rounded);
  return fmt::format("{:.{}f} {}", rounded, whole ? 0 : 1, kUnits[unit]);
}

}  // namespace crossdevice::programs
