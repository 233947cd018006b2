// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/membership_news.h"

#include <algorithm>

#include "crossdevice/device/shutdown.h"

namespace crossdevice::detail {

std::shared_ptr<void> MembershipNews::listen(const std::shared_ptr<MembershipNews>& news,
                                             MembershipListener listener) {
  const std::lock_guard lock(news->mutex_);
  for (const auto& [member, why] : news->lost_) {
    if (listener.on_lost) listener.on_lost(member, why);
  }
  if (news->aborted_.has_value() && listener.on_abort) {
    listener.on_abort(news->aborted_->first, news->aborted_->second);
  }
  const auto position = news->listeners_.insert(news->listeners_.end(), std::move(listener));
  return {nullptr, [news, position](void*) {
            if (is_forked_child())
              return;  // the parent's control thread may hold the lock for ever
            std::list<MembershipListener>
                removed;  // ends after the lock: it may hold the last handle on the cluster
            const std::lock_guard guard(news->mutex_);
            removed.splice(removed.begin(), news->listeners_, position);
          }};
}

void MembershipNews::tell_lost(const RankInfo& member, const std::string& why) {
  const std::lock_guard lock(mutex_);
  // Once: each listener, and those who are told later who is gone, count on it.
  const bool is_known = std::any_of(lost_.begin(), lost_.end(), [&](const auto& each) {
    return each.first.rank == member.rank && each.first.replica == member.replica;
  });
  if (is_known) return;
  lost_.emplace_back(member, why);
  for (const MembershipListener& listener : listeners_) {
    if (listener.on_lost) listener.on_lost(member, why);
  }
}

void MembershipNews::tell_abort(const RankInfo& origin, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (!aborted_.has_value()) tell_end(origin, text);
}

void MembershipNews::tell_end(const RankInfo& origin, const std::string& text) {
  const std::lock_guard lock(mutex_);
  aborted_.emplace(origin, text);
  for (const MembershipListener& listener : listeners_) {
    if (listener.on_abort) listener.on_abort(origin, text);
  }
}

void MembershipNews::tell_post(std::uint64_t group, int from, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  for (const MembershipListener& listener : listeners_) {
    if (listener.on_post) listener.on_post(group, from, bytes);
  }
}

}  // namespace crossdevice::detail
