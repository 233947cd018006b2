// SPDX-License-Identifier: Apache-2.0
/// How large a pack is that leaves while other gradients are still being computed, by the model of the links in this job.
#pragma once

#include <cstddef>
#include <vector>

#include "crossdevice/collective/all_reduce_choice.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// Where no links are known: workers share memory, are alone, or everything is pinned.
inline constexpr std::size_t kDefaultPackBytes = std::size_t{4} << 20;

/// A size of packs, and what is said for it.
struct PackCandidate {
  std::size_t size_bytes = kDefaultPackBytes;
  double predicted_seconds = 0;  ///< of one pack
  double overhead =
      0;  ///< the share of it that is not for its bytes, and that every pack more costs again
};

/// Powers of two, the choice first, then ascending; nothing where no links are known. The choice is the smallest one with an overhead of kMaxPackOverhead at most: a
/// smaller pack leaves earlier, a larger one wastes less. Equal on all ranks, as the tuning is.
///
/// It is for packs that leave one after the other as they are ready. A list that is there as a whole is best reduced as one pack: nothing is left to overlap with,
/// since rows of it are unpacked while others move, and every pack more costs its rounds.
[[nodiscard]] CROSSDEVICE_EXPORT std::vector<PackCandidate> rank_pack_sizes(
    std::size_t num_ranks, bool is_mesh, const AllReduceTuning& tuning);

inline constexpr double kMaxPackOverhead = 0.05;
inline constexpr std::size_t kMinPackBytes = std::size_t{256} << 10;
inline constexpr std::size_t kMaxPackBytes = std::size_t{32} << 20;

}  // namespace crossdevice
