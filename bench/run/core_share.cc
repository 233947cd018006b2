// SPDX-License-Identifier: Apache-2.0
#include "run/core_share.h"

#include <cstddef>
#include <iterator>

namespace crossdevice::run {

std::set<int> share_of_cores(const std::set<int>& cores, int index, int count) {
  const auto num_shares = static_cast<std::size_t>(count);
  if (cores.size() < num_shares) return cores;
  const auto boundary = [&](std::size_t share) {
    return std::next(cores.begin(), static_cast<std::ptrdiff_t>(cores.size() * share / num_shares));
  };
  const auto share = static_cast<std::size_t>(index);
  return {boundary(share), boundary(share + 1)};
}

}  // namespace crossdevice::run
