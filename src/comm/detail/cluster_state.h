// SPDX-License-Identifier: Apache-2.0
/// What a Cluster is to its own files.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/comm/cluster.h"

#include "comm/detail/control_plane.h"
#include "comm/detail/meeting_place.h"

namespace crossdevice {
namespace detail {

/// Of joining and rebuilding: where nobody says how long, CROSSDEVICE_DEFAULT_TIMEOUT, or else 300 s.
[[nodiscard]] Deadline join_deadline(const std::optional<double>& timeout_seconds);

}  // namespace detail

/// For this floor's transports and groups.
struct detail::ClusterInside {
  /// As ControlPlane::add_operations().
  [[nodiscard]] static std::shared_ptr<void> add_operations(const Cluster& cluster,
                                                            std::function<std::string()> read);
  /// As ControlPlane::ask(), with this cluster's ranks.
  [[nodiscard]] static std::vector<std::string> ask(const Cluster& cluster,
                                                    std::span<const int> ranks,
                                                    const Deadline& deadline);
  /// Its rank here; nothing: it is no member of this cluster.
  [[nodiscard]] static std::optional<int> chief(const Cluster& cluster);

  /// How long the others of the job may be silent.
  [[nodiscard]] static std::chrono::duration<double> heartbeat_timeout(const Cluster& cluster);

  /// Of the job; empty: there is none.
  [[nodiscard]] static const std::string& secret(const Cluster& cluster);

  /// As detail::last_completed().
  [[nodiscard]] static std::shared_ptr<std::atomic<std::uint64_t>> last_completed(
      const Cluster& cluster);
};

struct Cluster::State {
  std::shared_ptr<detail::MeetingPlace> place;  // none: the job has one worker
  detail::ControlPlaneOptions plane_options;
  std::shared_ptr<detail::ControlPlane> plane;
  std::shared_ptr<void> watching;  // for the next epoch; ends before the plane
  detail::Epoch epoch;             // of the plane: ranks of the job, by the plane's
  std::vector<int> members;        // the plane's ranks, by this cluster's
  int rank = 0;
  const std::shared_ptr<std::atomic<std::uint64_t>> last_completed =
      std::make_shared<std::atomic<std::uint64_t>>(0);  // 0: none since it was made
  detail::Completed completed_before;                   // on all members, in an earlier epoch
  std::atomic<bool> is_rebuilt{false};
  std::uint64_t group = 0;
  bool is_everybody = true;

  /// Orders the rounds: one thread of this worker at a time is in one. Held by a flag and not by a lock, so that whoever comes second can stop waiting for it.
  std::mutex turn_mutex;  // guards the following; never held while a round is under way
  std::condition_variable turn_changed;
  std::string round_under_way;  // empty: none
  std::uint64_t sequence = 0;

  std::mutex subgroup_mutex;  // guards the following
  std::map<std::vector<int>, std::uint64_t> subgroup_counts;

  class Turn;
  void begin(std::shared_ptr<detail::ControlPlane> new_plane, detail::Epoch new_epoch);
  /// Of the job.
  [[nodiscard]] int job_rank() const { return epoch.members[static_cast<std::size_t>(rank)]; }
  /// Ranks of the job that the plane knows to be gone.
  [[nodiscard]] std::vector<int> lost() const;
  [[nodiscard]] detail::MeetingRequest request(Survivors survivors,
                                               const RebuildOptions& options) const;
  [[nodiscard]] detail::Meeting meet(const detail::MeetingRequest& request) const;
  /// How this worker meets the others of the next epoch.
  [[nodiscard]] detail::ControlPlaneOptions options_of(const detail::Meeting& meeting) const;
  /// Members of the next epoch, by their ranks in it: as this cluster calls them.
  [[nodiscard]] std::vector<RankInfo> here(const detail::Epoch& next,
                                           std::span<const RankInfo> ranks) const;
  [[nodiscard]] const detail::MemberInfo& member(int of_rank) const {
    return plane->members()[static_cast<std::size_t>(members[static_cast<std::size_t>(of_rank)])];
  }
  [[nodiscard]] std::optional<int> rank_of(int plane_rank) const {
    const auto position = std::find(members.begin(), members.end(), plane_rank);
    if (position == members.end()) return std::nullopt;
    return static_cast<int>(position - members.begin());
  }
  [[nodiscard]] RankInfo worker(int of_rank) const {
    RankInfo info = member(of_rank).rank_info();
    info.rank = of_rank;
    return info;
  }
  void require_rank(int of_rank) const {
    if (of_rank < 0 || of_rank >= static_cast<int>(members.size())) {
      throw ValueError(fmt::format("rank {} is outside [0, {})", of_rank, members.size()));
    }
  }
};

}  // namespace crossdevice
