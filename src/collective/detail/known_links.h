// SPDX-License-Identifier: Apache-2.0
/// What has been measured of the links in this job, so that it is measured once, however many engines are made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

#include "crossdevice/collective/all_reduce_choice.h"

namespace crossdevice::detail {

/// Of the clusters that measured last. Rank 0's alone is asked, and told to the others: so all members measure, or none does.
///
/// Threads  any.
class KnownLinks {
 public:
  static constexpr std::size_t kMaxClusters = 64;

  /// The process's.
  [[nodiscard]] static KnownLinks& of_process();

  /// `cluster`: its id, which no other one ever has; a rebuilt one measures anew.
  [[nodiscard]] std::optional<LinkModel> find(std::uint64_t cluster) const;
  void keep(std::uint64_t cluster, const LinkModel& links);

 private:
  struct Entry {
    std::uint64_t cluster = 0;
    LinkModel links;
  };
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;  // the newest last
};

}  // namespace crossdevice::detail
