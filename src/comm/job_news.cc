// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/job_news.h"

#include "crossdevice/comm/gpu_watchdog.h"
#include "crossdevice/core/error.h"

#include "comm/detail/control_message.h"
#include "comm/detail/group_news.h"
#include "comm/detail/nccl_reaper.h"

namespace crossdevice::detail {

namespace {

void throw_if_any(const GroupNews& news) {
  if (news.kind() == GroupNews::Kind::NONE) return;
  const GroupNews::Item item = news.item();
  const bool is_loss = item.kind == GroupNews::Kind::LOST;
  throw_op_error(is_loss ? StatusCode::UNAVAILABLE : StatusCode::ABORTED, item.text,
                 {.operation = {}, .culprits = {item.culprit}});
}

class BehindOthers final : public WaitInterrupter {
 public:
  explicit BehindOthers(Cluster& cluster) {
    news_.listen(
        cluster, [](const RankInfo& member) { return member; }, GroupNews::Leavers::ARE_NOT_MISSED);
  }
  void throw_if_interrupted() const override { throw_if_any(news_); }

 private:
  GroupNews news_;
};

}  // namespace

struct JobNews::State {
  explicit State(Cluster& cluster) : behind(cluster) {
    news.listen(cluster, [](const RankInfo& member) { return member; });
  }
  GroupNews news;
  BehindOthers behind;
};

std::string abort_text(const RankInfo& origin, const std::string& text) {
  if (text.starts_with(kRebuilt) || text.starts_with(kLeftOut)) return text;
  return to_string(origin) + " aborted: " + text;
}

JobNews::JobNews(Cluster& cluster) : state_(std::make_unique<State>(cluster)) {}

/// Whoever listens holds the job. The last operation on a GPU may have outlived all else that does, and ends on the watchdog's thread.
JobNews::~JobNews() {
  if (is_watchdog_thread()) leave_job_beside(std::shared_ptr<State>(std::move(state_)));
}

void JobNews::throw_if_interrupted() const { throw_if_any(state_->news); }
const WaitInterrupter& JobNews::behind_others() const { return state_->behind; }

}  // namespace crossdevice::detail
