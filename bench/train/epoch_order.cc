// SPDX-License-Identifier: Apache-2.0
/// Shuffles with an algorithm of its own: std::shuffle may differ between standard libraries.
#include "train/epoch_order.h"

#include <numeric>
#include <random>
#include <utility>

namespace crossdevice::train {

std::vector<std::size_t> epoch_order(std::size_t count, std::uint64_t seed, std::size_t epoch) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 engine(seed * 0x9E3779B97F4A7C15U + epoch);
  for (std::size_t left = count; left > 1; --left) {
    // The remainder favours small numbers by less than 1e-14 for any number of examples that fits in memory.
    std::swap(order[left - 1], order[engine() % left]);
  }
  return order;
}

}  // namespace crossdevice::train
