// SPDX-License-Identifier: Apache-2.0
/// Who listens to what becomes of a cluster's members, and what has become of them so far.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "crossdevice/core/error.h"

#include "comm/detail/control_plane.h"

namespace crossdevice::detail {

/// Threads  any. Listeners run on the one that tells, one at a time.
class MembershipNews {
 public:
  /// As ControlPlane's; the handle keeps `news`.
  [[nodiscard]] static std::shared_ptr<void> listen(const std::shared_ptr<MembershipNews>& news,
                                                    MembershipListener listener);
  /// The first time counts.
  void tell_lost(const RankInfo& member, const std::string& why);
  /// The first one counts.
  void tell_abort(const RankInfo& origin, const std::string& text);
  /// The same, but counts for more than any before.
  void tell_end(const RankInfo& origin, const std::string& text);
  /// Who listens later does not hear it.
  void tell_post(std::uint64_t group, int from, std::string_view bytes);

 private:
  std::recursive_mutex mutex_;  // guards the following
  std::list<MembershipListener> listeners_;
  std::vector<std::pair<RankInfo, std::string>> lost_;
  std::optional<std::pair<RankInfo, std::string>> aborted_;
};

}  // namespace crossdevice::detail
