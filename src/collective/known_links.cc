// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/known_links.h"

#include <algorithm>

namespace crossdevice::detail {

KnownLinks& KnownLinks::of_process() {
  static KnownLinks& instance = *new KnownLinks;  // for threads that outlive main()
  return instance;
}

std::optional<LinkModel> KnownLinks::find(std::uint64_t cluster) const {
  const std::lock_guard lock(mutex_);
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [cluster](const Entry& each) { return each.cluster == cluster; });
  if (entry == entries_.end()) return std::nullopt;
  return entry->links;
}

void KnownLinks::keep(std::uint64_t cluster, const LinkModel& links) {
  const std::lock_guard lock(mutex_);
  if (entries_.size() == kMaxClusters) entries_.pop_front();
  entries_.push_back({cluster, links});
}

}  // namespace crossdevice::detail
