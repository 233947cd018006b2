// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/group_news.h"

namespace crossdevice::detail {

void GroupNews::listen(Cluster& cluster, Name name) {
  name_ = std::move(name);
  listening_ = cluster.listen(
      {.on_lost = [this](const RankInfo& member,
                         const std::string& why) { tell(Kind::LOST, member, " is gone: " + why); },
       .on_abort =
           [this](const RankInfo& origin, const std::string& text) {
             tell(Kind::ABORTED, origin, " aborted: " + text);
           }});
}

void GroupNews::tell(Kind kind, const RankInfo& who, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (kind_.load() >= kind) return;
  culprit_ = name_(who);
  text_ = to_string(culprit_) + text;
  kind_.store(kind);
}

std::pair<std::string, RankInfo> GroupNews::what() const {
  const std::lock_guard lock(mutex_);
  return {text_, culprit_};
}

}  // namespace crossdevice::detail
