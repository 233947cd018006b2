// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/job_news.h"

#include "crossdevice/core/error.h"

#include "comm/detail/group_news.h"

namespace crossdevice::detail {

struct JobNews::State {
  GroupNews news;
};

JobNews::JobNews(Cluster& cluster) : state_(std::make_unique<State>()) {
  state_->news.listen(cluster, [](const RankInfo& member) { return member; });
}

JobNews::~JobNews() = default;

void JobNews::throw_if_interrupted() const {
  if (state_->news.kind() == GroupNews::Kind::NONE) return;
  const GroupNews::Item item = state_->news.item();
  const bool is_loss = item.kind == GroupNews::Kind::LOST;
  throw_op_error(is_loss ? StatusCode::UNAVAILABLE : StatusCode::ABORTED, item.text,
                 {.operation = {}, .culprits = {item.culprit}});
}

}  // namespace crossdevice::detail
