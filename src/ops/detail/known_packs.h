// SPDX-License-Identifier: Apache-2.0
/// From the sizes of a batch to its packs: worked out once per kind of batch.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "crossdevice/collective/pack.h"
#include "crossdevice/core/int64.h"

namespace crossdevice::detail {

/// Of one ops object; used by one thread at a time.
class KnownPacks {
 public:
  /// make_packs() of these tensors: with `bytes_per_pack`, or, where that is 0, one pack each dtype. Valid until the next call. Allocates nothing for a
  /// batch whose sizes and limit are, each of them, those of one that it knows.
  [[nodiscard]] std::span<const Pack> packs(std::span<const TensorSize> sizes,
                                            Int64 bytes_per_pack);

 private:
  struct Known {
    Int64 bytes_per_pack = 0;
    std::vector<TensorSize> sizes;
    std::vector<Pack> packs;
  };

  std::vector<Known> known_;
  std::size_t next_replaced_ = 0;
};

}  // namespace crossdevice::detail
