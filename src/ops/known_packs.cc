// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/known_packs.h"

#include <algorithm>
#include <utility>

namespace crossdevice::detail {
namespace {

// More kinds of batches than a training program has: its gradients, the packs of a bucketer, a few metrics.
constexpr std::size_t kMaxKnown = 16;

}  // namespace

std::span<const Pack> KnownPacks::packs(std::span<const TensorSize> sizes, Int64 bytes_per_pack) {
  for (const Known& known : known_) {
    if (known.bytes_per_pack == bytes_per_pack && std::ranges::equal(known.sizes, sizes)) {
      return known.packs;
    }
  }
  const PackingOptions packing = bytes_per_pack == 0
                                     ? PackingOptions{.num_packs = 1}
                                     : PackingOptions{.bytes_per_pack = bytes_per_pack};
  Known made{.bytes_per_pack = bytes_per_pack,
             .sizes = {sizes.begin(), sizes.end()},
             .packs = make_packs(sizes, packing)};
  if (known_.size() < kMaxKnown) return known_.emplace_back(std::move(made)).packs;
  Known& replaced = known_[next_replaced_];
  next_replaced_ = (next_replaced_ + 1) % kMaxKnown;
  replaced = std::move(made);
  return replaced.packs;
}

}  // namespace crossdevice::detail
