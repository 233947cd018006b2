// SPDX-License-Identifier: Apache-2.0
/// The next cluster, of those that are left.
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/own_want.h"

#include "comm/detail/cluster_state.h"

namespace crossdevice {
namespace {

using detail::ControlPlane;
using detail::ControlPlaneOptions;

constexpr double kDefaultJoinSeconds = 300;

/// What a cluster that did not come together says speaks of its own ranks, which nobody has got: it is said anew where it names some, and quoted where
/// it says more than their names.
std::string why_apart(const OpError& error, const std::vector<RankInfo>& culprits,
                      std::uint64_t epoch) {
  if (culprits.empty()) return error.what();
  std::string names;
  for (const RankInfo& each : culprits) names += (names.empty() ? "" : ", ") + to_string(each);
  const char* const happened =
      error.code() == StatusCode::DEADLINE_EXCEEDED ? "timed out waiting for" : "failed for";
  return fmt::format("it {} {} (in the ranks of epoch {}: {})", happened, names, epoch,
                     error.what());
}

/// With what this worker lacks as an error like others: it is this worker's alone.
std::shared_ptr<ControlPlane> join_plane(const ControlPlaneOptions& options,
                                         const Deadline& deadline) try {
  return ControlPlane::join(options, deadline);
} catch (...) {
  detail::rethrow_own_want("joining the other workers");
}

}  // namespace

Deadline detail::join_deadline(const std::optional<double>& timeout_seconds) {
  if (timeout_seconds.has_value()) return Deadline::after_timeout_seconds(timeout_seconds);
  return Deadline::after_timeout_seconds(
      environment().default_timeout_seconds.value_or(kDefaultJoinSeconds));
}

std::vector<int> Cluster::State::lost() const {
  std::vector<int> ranks;
  (void)plane->listen({.on_lost =
                           [&](const RankInfo& gone, const std::string&) {
                             ranks.push_back(epoch.members[static_cast<std::size_t>(gone.rank)]);
                           },
                       .on_abort = nullptr});
  return ranks;
}

detail::MeetingRequest Cluster::State::request(Survivors survivors,
                                               const RebuildOptions& options) const {
  detail::MeetingRequest request{
      .call = fmt::format("rebuild({}, min_workers = {})",
                          survivors == Survivors::ALL ? "ALL" : "ONLY", options.min_workers),
      .needs_all = survivors == Survivors::ALL,
      .min_workers = static_cast<std::size_t>(options.min_workers),
      .patience = std::chrono::duration<double>(options.patience_seconds),
      .deadline = detail::join_deadline(options.timeout_seconds),
      .completed = completed_before,
      .lost = lost(),
      .names = {}};
  if (const std::uint64_t last = last_completed->load(std::memory_order_relaxed); last != 0) {
    request.completed = {epoch.number, last};
  }
  // A rank of the job that is not in this cluster has no name in it.
  request.names.resize(static_cast<std::size_t>(epoch.members.back()) + 1);
  for (std::size_t i = 0; i < epoch.members.size(); ++i) {
    request.names[static_cast<std::size_t>(epoch.members[i])] = plane->members()[i].rank_info();
  }
  return request;
}

std::vector<RankInfo> Cluster::State::here(const detail::Epoch& next,
                                           std::span<const RankInfo> ranks) const {
  std::vector<RankInfo> infos;
  infos.reserve(ranks.size());
  for (const RankInfo& each : ranks) {
    if (each.rank < 0 || static_cast<std::size_t>(each.rank) >= next.members.size()) continue;
    const int of_job = next.members[static_cast<std::size_t>(each.rank)];
    const auto position = std::lower_bound(epoch.members.begin(), epoch.members.end(), of_job);
    if (position == epoch.members.end() || *position != of_job) continue;
    infos.push_back(
        plane->members()[static_cast<std::size_t>(position - epoch.members.begin())].rank_info());
  }
  return infos;
}

ControlPlaneOptions Cluster::State::options_of(const detail::Meeting& meeting) const {
  const std::vector<int>& ranks = meeting.epoch.members;
  ControlPlaneOptions next = plane_options;
  next.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), job_rank()) - ranks.begin());
  next.num_workers = static_cast<int>(ranks.size());
  next.chief_address = meeting.chief_address;
  next.more_chief_addresses.clear();
  next.addresses_by_rank.clear();
  next.listener = meeting.listener;
  next.is_chief_listening = place != nullptr && next.rank != 0;
  next.epoch = meeting.epoch.number;
  next.job = place ? place->job() : 0;
  next.find_gone = nullptr;
  if (!place || ranks.size() == 1) return next;
  const bool is_chief = next.rank == 0;
  const std::vector<int> asked(ranks.begin() + (is_chief ? 1 : 0),
                               is_chief ? ranks.end() : ranks.begin() + 1);
  next.find_gone = [weak = std::weak_ptr(place), ranks, asked](auto latest) {
    const std::shared_ptr<detail::MeetingPlace> here = weak.lock();
    std::vector<int> gone = here ? here->find_gone(asked, latest) : std::vector<int>();
    for (int& each : gone) {  // in the next epoch's ranks
      each = static_cast<int>(std::find(ranks.begin(), ranks.end(), each) - ranks.begin());
    }
    return gone;
  };
  return next;
}

namespace {

void require_possible(const RebuildOptions& options, int num_workers) {
  if (!(options.patience_seconds >= 0)) {
    throw ValueError(
        fmt::format("patience_seconds must not be negative, but is {}", options.patience_seconds));
  }
  if (options.min_workers < 0 || options.min_workers > num_workers) {
    throw ValueError(
        fmt::format("min_workers must be from 0 to {}, not {}", num_workers, options.min_workers));
  }
}

}  // namespace

Rebuilt Cluster::rebuild(Survivors survivors, const RebuildOptions& options) try {
  require_possible(options, num_workers());
  if (!state_->is_everybody) {
    throw FailedPreconditionError("rebuild: this is a subgroup; rebuild the cluster it is of");
  }
  const detail::MeetingRequest request = state_->request(survivors, options);
  if (state_->is_rebuilt.load()) {
    throw FailedPreconditionError("rebuild: this cluster has been rebuilt; rebuild the new one");
  }
  for (;;) {
    const detail::Meeting meeting = state_->meet(request);
    auto state = std::make_shared<State>();
    state->place = state_->place;
    state->plane_options = state_->options_of(meeting);
    ControlPlaneOptions& plane_options = state->plane_options;
    // Whoever was there a moment ago comes at once, or has died since (find_gone), or seems to live and does not come: then the others meet again.
    const Deadline soon = Deadline::earlier(
        request.deadline, Deadline::after(request.patience + plane_options.heartbeat_timeout));
    std::shared_ptr<ControlPlane> plane;
    try {
      plane = join_plane(plane_options, soon);
    } catch (const OpError& error) {
      const std::vector<RankInfo> culprits = state_->here(meeting.epoch, error.culprits());
      const std::string text =
          fmt::format("{}: epoch {} has not come together: {}", request.call, meeting.epoch.number,
                      why_apart(error, culprits, meeting.epoch.number));
      // Where this worker lacks what it needs it would lack it in the next one, and keep the others, who have its vote, from going on without it.
      const bool is_own_want =
          error.code() == StatusCode::RESOURCE_EXHAUSTED &&
          std::all_of(error.culprits().begin(), error.culprits().end(),
                      [&](const RankInfo& each) { return each.rank == plane_options.rank; });
      if (is_own_want || request.deadline.has_passed()) {
        throw_op_error(error.code(), text,
                       {.operation = {}, .culprits = culprits, .inputs_intact = true});
      }
      log(LogSeverity::WARNING, text + "; the next one is tried");
      continue;
    }
    plane_options.listener.reset();
    state->completed_before = meeting.completed;
    state->begin(std::move(plane), meeting.epoch);
    state_->is_rebuilt = true;
    Rebuilt rebuilt{.last_completed = {meeting.completed.epoch, meeting.completed.sequence},
                    .epoch = meeting.epoch.number};
    for (int rank = 0; rank < num_workers(); ++rank) {
      if (!meeting.epoch.has(state_->epoch.members[static_cast<std::size_t>(rank)])) {
        rebuilt.left_out.push_back(worker(rank));
      }
    }
    rebuilt.cluster = std::make_shared<Cluster>(Passkey(), std::move(state));
    return rebuilt;
  }
} catch (...) {
  detail::rethrow_own_want("rebuild");
}

detail::Meeting Cluster::State::meet(const detail::MeetingRequest& request) const {
  if (place) return place->meet(request);
  return {.epoch = {epoch.number + 1, epoch.members},
          .completed = request.completed,
          .chief_address = "",
          .listener = nullptr};
}

}  // namespace crossdevice
