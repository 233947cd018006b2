// SPDX-License-Identifier: Apache-2.0
/// What is left to chance, drawn from a seed: the same draws give the same numbers on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>

namespace crossdevice::testing {

/// Threads  one at a time.
class Choices {
 public:
  explicit Choices(std::uint64_t seed) : random_(seed) {}

  /// In [0, bound); a bound of 0 or 1 draws nothing.
  [[nodiscard]] std::size_t below(std::size_t bound) {
    return bound < 2 ? 0 : static_cast<std::size_t>(random_() % bound);
  }
  [[nodiscard]] bool once_in(std::size_t n) { return below(n) == 0; }
  template <class T, std::size_t kCount>
  [[nodiscard]] const T& one_of(const T (&values)[kCount]) {
    return values[below(kCount)];
  }
  /// An index, as often as its weight says. At least one weight is not 0.
  [[nodiscard]] std::size_t weighted(std::span<const std::size_t> weights) {
    std::size_t at = below(std::accumulate(weights.begin(), weights.end(), std::size_t{0}));
    std::size_t index = 0;
    while (at >= weights[index]) at -= weights[index++];
    return index;
  }
  [[nodiscard]] std::uint64_t seed() { return random_(); }

 private:
  std::mt19937_64 random_;  // the standard says what it gives; not so its distributions
};

}  // namespace crossdevice::testing
