// SPDX-License-Identifier: Apache-2.0
/// Whether workers mean the same, in one number.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "crossdevice/core/export.h"

namespace crossdevice {

/// A number that differs, all but certainly, where what was added differs.
class CROSSDEVICE_EXPORT Fingerprint {
 public:
  /// The step of wyhash: one multiplication, whose halves are folded. The rest is off the path from one value to the next.
  void add(std::uint64_t value) {
    value_ = folded(value_ ^ (value * 0xff51afd7ed558ccdU), 0x9e3779b97f4a7c15U);
  }
  /// Several in one step, for what every call computes: pairs are multiplied with each other, as wyhash does, which the processor does side by side. Not the
  /// number that comes of one after the other.
  template <std::convertible_to<std::uint64_t>... Values>
  requires(sizeof...(Values) > 1) void add(Values... values) {
    constexpr std::size_t kPairs = (sizeof...(Values) + 1) / 2;
    static_assert(2 * kPairs <= kSecrets.size());
    const std::array<std::uint64_t, 2 * kPairs> all{static_cast<std::uint64_t>(values)...};
    add(sum_of_pairs(all, std::make_index_sequence<kPairs>()));
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  __extension__ using Wide = unsigned __int128;

  [[nodiscard]] static std::uint64_t folded(std::uint64_t a, std::uint64_t b) {
    const Wide product = Wide{a} * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
  }
  /// Without a pattern, another for each place: the fractions of the square roots of the first primes.
  static constexpr std::array<std::uint64_t, 8> kSecrets{
      0x6a09e667f3bcc908U, 0xbb67ae8584caa73bU, 0x3c6ef372fe94f82bU, 0xa54ff53a5f1d36f1U,
      0x510e527fade682d1U, 0x9b05688c2b3e6c1fU, 0x1f83d9abfb41bd6bU, 0x5be0cd19137e2179U};
  template <std::size_t size, std::size_t... I>
  [[nodiscard]] static std::uint64_t sum_of_pairs(const std::array<std::uint64_t, size>& all,
                                                  std::index_sequence<I...> /*pairs*/) {
    return (folded(all[2 * I] ^ kSecrets[2 * I], all[2 * I + 1] ^ kSecrets[2 * I + 1]) + ...);
  }

  std::uint64_t value_ = 0xc4ceb9fe1a85ec53U;
};

}  // namespace crossdevice
