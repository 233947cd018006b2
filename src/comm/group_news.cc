// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/group_news.h"

#include <utility>

#include "crossdevice/comm/job_news.h"

#include "comm/detail/control_message.h"

namespace crossdevice::detail {

void GroupNews::listen(Cluster& cluster, Name name, Leavers leavers) {
  name_ = std::move(name);
  listening_ = cluster.listen({.on_lost =
                                   [this, leavers](const RankInfo& member, const std::string& why) {
                                     if (why == kHasLeft && leavers == Leavers::ARE_NOT_MISSED)
                                       return;
                                     tell(Kind::LOST, member, [&why](const RankInfo& lost) {
                                       return to_string(lost) + " is gone: " + why;
                                     });
                                   },
                               .on_abort =
                                   [this](const RankInfo& origin, const std::string& text) {
                                     tell(Kind::ABORTED, origin, [&text](const RankInfo& who) {
                                       return abort_text(who, text);
                                     });
                                   }});
}

void GroupNews::tell(Kind kind, const RankInfo& who,
                     const std::function<std::string(const RankInfo&)>& text) {
  const std::lock_guard lock(mutex_);
  if (item_.kind >= kind) return;
  const RankInfo culprit = name_(who);
  item_ = {.kind = kind, .text = text(culprit), .culprit = culprit};
  kind_.store(kind, std::memory_order_release);
}

GroupNews::Item GroupNews::item() const {
  const std::lock_guard lock(mutex_);
  return item_;
}

}  // namespace crossdevice::detail
