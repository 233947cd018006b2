// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/transport_group.h"

#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/comm/job_news.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/trace.h"

#include "collective/detail/call_details.h"
#include "collective/detail/known_links.h"
#include "collective/detail/link_measurement.h"
#include "collective/detail/tuning_agreement.h"

namespace crossdevice::detail {

TransportGroup::TransportGroup(std::shared_ptr<Cluster> cluster,
                               std::unique_ptr<Transport> transport, const Deadline& deadline,
                               std::span<const int> peers)
    : cluster_(std::move(cluster)),
      transport_(std::move(transport)),
      inquest_(cluster_),
      executor_(*transport_),
      barrier_(*transport_),
      num_ranks_(static_cast<std::size_t>(transport_->num_ranks())),
      rank_(static_cast<std::size_t>(transport_->rank())),
      is_mesh_(transport_->num_ranks() <= kMeshRanks) {
  meet(peers, deadline);
}

void TransportGroup::meet(std::span<const int> peers, const Deadline& deadline) {
  const Presence presence(*cluster_, "making connections", 0);
  // That a member is gone is the transport's to notice: one that has left after its last message is missed by nobody.
  listening_ = cluster_->listen(
      {.on_lost = {}, .on_abort = [this](const RankInfo& origin, const std::string& text) {
         transport_->stop(StatusCode::ABORTED, abort_text(origin, text), {origin});
       }});
  tuning_ = receive_tuning(*cluster_, deadline);
  std::set<int> wanted(peers.begin(), peers.end());
  const int n = transport_->num_ranks();
  for (int distance = 1; distance < n; distance = is_mesh_ ? distance + 1 : 2 * distance) {
    wanted.insert((transport_->rank() + distance) % n);
    wanted.insert((transport_->rank() + n - distance) % n);
  }
  const std::vector<int> list(wanted.begin(), wanted.end());
  transport_->connect(list, deadline);
  // Nobody goes on, and perhaps away, while others still connect: both end with a round of the control plane, so that the transport's end is no matter of
  // this meeting.
  if (num_ranks_ == 1 && !tuning_.links.has_value()) tuning_.links.emplace();  // there are none
  // All have the same tuning, which is rank 0's, and so all measure or none does.
  if (tuning_.links.has_value() || pins_every_size(tuning_, is_mesh_)) {
    cluster_->barrier(deadline);
  } else {
    const TraceSpan span("measure links", "collective");
    tuning_.links = measure_links(*cluster_, *transport_, scratch_,
                                  {.is_mesh = is_mesh_, .deadline = deadline});
    if (rank_ == 0) KnownLinks::of_process().keep(cluster_->id(), *tuning_.links);
  }
  if (rank_ == 0) log(LogSeverity::INFO, describe(tuning_, num_ranks_, is_mesh_));
}

void TransportGroup::require_whole() const {
  if (broken_text_.empty()) return;
  throw FailedPreconditionError("the group of workers is broken since " + broken_text_,
                                {.operation = {}, .culprits = broken_by_});
}

void TransportGroup::break_off(StatusCode code, const std::string& text,
                               std::vector<RankInfo> culprits) {
  broken_text_ = text;
  broken_by_ = culprits;
  transport_->stop(code, text, std::move(culprits));
  if (end_) end_(text);
}

void TransportGroup::explain(const CollectiveRequest& request, const OpError& failure) {
  break_off(failure.code(), failure.what(), {failure.culprits().begin(), failure.culprits().end()});
  await_end_of_transport();
  try {
    inquest_.set_details(details_of(request));
    inquest_.hold(fmt::format("{} #{}", request.kind, request.sequence), failure,
                  !outputs_are_written_, transport_->traffic_at_end());
  } catch (const OpError& verdict) {
    broken_text_ = verdict.what();
    broken_by_.assign(verdict.culprits().begin(), verdict.culprits().end());
    throw;
  }
}

void TransportGroup::tell(const CollectiveRequest& request, const std::exception& failure) {
  break_off(StatusCode::ABORTED,
            fmt::format("rank {} failed in {} #{}: {}", rank_, request.kind, request.sequence,
                        failure.what()),
            {cluster_->worker(static_cast<int>(rank_))});
  await_end_of_transport();
}

/// Once it has been stopped: afterwards nobody touches the caller's memory any more, nor what had moved.
void TransportGroup::await_end_of_transport() {
  try {
    transport_->poll();
  } catch (
      const OpError&) {  // NOLINT(bugprone-empty-catch): what it says is what was just said to it
  }
}

}  // namespace crossdevice::detail
