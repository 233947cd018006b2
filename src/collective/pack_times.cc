// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/pack_times.h"

#include <algorithm>
#include <limits>

namespace crossdevice::detail {

void PackTimes::record(const Pack& pack) noexcept {
  const std::size_t num_elements = pack.num_elements();
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  Time all{.begin_ns = kNever, .end_ns = 0};
  // Pieces without elements belong to whichever pack: they take no time.
  for (std::size_t done = 0; done < num_elements && next_piece_ < times_.size(); ++next_piece_) {
    done += plan_.pieces()[next_piece_].count;
    const Time& time = times_[next_piece_];
    if (time.end_ns == 0) continue;
    all.begin_ns = std::min(all.begin_ns, time.begin_ns);
    all.end_ns = std::max(all.end_ns, time.end_ns);
  }
  if (all.begin_ns == kNever) return;
  const std::int64_t begin_ns = std::max(all.begin_ns, last_end_ns_);
  last_end_ns_ = std::max(all.end_ns, begin_ns);
  record_bar({.name = "pack of values",
              .category = "pack",
              .begin_ns = begin_ns,
              .end_ns = last_end_ns_,
              .arguments = {.num_bytes = pack.size_bytes(), .dtype = to_string(pack.dtype)}});
}

}  // namespace crossdevice::detail
