// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/cluster.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/comm/detect_cluster_resolver.h"
#include "crossdevice/comm/multi_worker_util.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/log.h"

#include "comm/detail/authentication.h"
#include "comm/detail/chief_address.h"
#include "comm/detail/control_plane.h"
#include "comm/detail/host_name.h"
#include "comm/detail/wire.h"

namespace crossdevice {
namespace {

using detail::ControlPlane;
using detail::ControlPlaneOptions;

constexpr double kDefaultJoinSeconds = 300;

Deadline deadline_of(std::optional<double> timeout_seconds) {
  return Deadline::after_timeout_seconds(
      timeout_seconds.has_value() ? timeout_seconds : environment().default_timeout_seconds);
}

Deadline join_deadline(const JoinOptions& options) {
  if (options.timeout_seconds.has_value()) {
    return Deadline::after_timeout_seconds(options.timeout_seconds);
  }
  return Deadline::after_timeout_seconds(
      environment().default_timeout_seconds.value_or(kDefaultJoinSeconds));
}

std::chrono::duration<double> require_positive(double seconds, const char* what) {
  if (!(seconds > 0)) throw ValueError(fmt::format("{} must be positive, not {}", what, seconds));
  return std::chrono::duration<double>(std::min(seconds, 1e8));
}

/// Where the launcher says that each rank is; nothing where it does not.
std::vector<std::string> addresses_by_rank(const WorkerIdentity& identity) {
  std::vector<std::string> addresses;
  if (!identity.cluster_spec.has_value()) return addresses;
  const ClusterSpec& spec = *identity.cluster_spec;
  addresses.resize(static_cast<std::size_t>(identity.num_workers));
  for (const ClusterTask& task : spec.tasks()) {
    if (task.job != "chief" && task.job != "worker") continue;
    const auto rank = static_cast<std::size_t>(id_in_cluster(spec, task.job, task.index));
    if (rank < addresses.size()) addresses[rank] = task.address;
  }
  return addresses;
}

/// A number that members alone agree on: the first 8 bytes of a keyless code over what distinguishes the group.
std::uint64_t group_id(std::uint64_t parent, const std::vector<int>& members, std::uint64_t count) {
  detail::WireWriter name;
  name.number(parent).number(count);
  for (const int member : members) name.number(std::int32_t{member});
  const detail::Mac code = detail::authenticate("", {name.take()});
  return detail::WireReader(detail::view_of(code)).number<std::uint64_t>();
}

}  // namespace

struct Cluster::State {
  std::shared_ptr<ControlPlane> plane;
  std::vector<int> members;  // the plane's ranks, by this cluster's
  int rank = 0;
  std::uint64_t group = 0;
  bool is_everybody = true;

  std::mutex mutex;  // guards the following, and orders the rounds
  std::uint64_t sequence = 0;
  std::map<std::vector<int>, std::uint64_t> subgroup_counts;

  [[nodiscard]] const detail::MemberInfo& member(int of_rank) const {
    return plane->members()[static_cast<std::size_t>(members[static_cast<std::size_t>(of_rank)])];
  }
  [[nodiscard]] std::optional<int> rank_of(int plane_rank) const {
    const auto position = std::find(members.begin(), members.end(), plane_rank);
    if (position == members.end()) return std::nullopt;
    return static_cast<int>(position - members.begin());
  }
  void require_rank(int of_rank) const {
    if (of_rank < 0 || of_rank >= static_cast<int>(members.size())) {
      throw ValueError(fmt::format("rank {} is outside [0, {})", of_rank, members.size()));
    }
  }
};

Cluster::Cluster(Passkey /*key*/, std::shared_ptr<State> state) : state_(std::move(state)) {}
Cluster::~Cluster() = default;

std::shared_ptr<Cluster> Cluster::join(const JoinOptions& options) {
  return join(*detect_cluster_resolver(), options);
}

std::shared_ptr<Cluster> Cluster::join(const ClusterResolver& resolver,
                                       const JoinOptions& options) {
  WorkerIdentity identity = resolver.identity();
  if (identity.num_workers > 1 && identity.chief_address.empty()) {
    if (!resolver.can_all_gather()) {
      throw ValueError(to_string(identity) +
                       ": nobody says where rank 0 listens; CROSSDEVICE_CHIEF_ADDRESS does");
    }
    identity.chief_address = detail::agree_on_chief_address(resolver, identity.rank);
  }
  const std::optional<std::string> secret_file = process_environment()(kSecretFileVariable);
  const ControlPlaneOptions plane_options{
      .rank = identity.rank,
      .num_workers = identity.num_workers,
      .chief_address = identity.chief_address,
      .addresses_by_rank = addresses_by_rank(identity),
      .secret = secret_file.value_or("").empty() ? "" : detail::read_secret(*secret_file),
      .host = detail::host_name(),
      .host_id = detail::host_id(),
      .heartbeat_timeout =
          require_positive(options.heartbeat_timeout_seconds, "heartbeat_timeout_seconds"),
      .stall_warning = require_positive(options.stall_warning_seconds, "stall_warning_seconds")};
  auto state = std::make_shared<State>();
  state->plane = ControlPlane::join(plane_options, join_deadline(options));
  state->rank = identity.rank;
  state->members.reserve(static_cast<std::size_t>(identity.num_workers));
  for (int rank = 0; rank < identity.num_workers; ++rank) state->members.push_back(rank);
  state->group = group_id(state->plane->cluster_id(), state->members, 0);
  log(LogSeverity::INFO, "joined: " + to_string(identity));
  return std::make_shared<Cluster>(Passkey(), std::move(state));
}

int Cluster::rank() const { return state_->rank; }
int Cluster::num_workers() const { return static_cast<int>(state_->members.size()); }

int Cluster::local_rank() const {
  const std::vector<int> beside = ranks_beside(rank());
  return static_cast<int>(std::find(beside.begin(), beside.end(), rank()) - beside.begin());
}

int Cluster::num_local_workers() const { return static_cast<int>(ranks_beside(rank()).size()); }

std::vector<int> Cluster::ranks_beside(int rank) const {
  state_->require_rank(rank);
  const std::string& host_id = state_->member(rank).host_id;
  std::vector<int> ranks;
  for (int each = 0; each < num_workers(); ++each) {
    if (state_->member(each).host_id == host_id) ranks.push_back(each);
  }
  return ranks;
}

RankInfo Cluster::worker(int rank) const {
  state_->require_rank(rank);
  RankInfo info = state_->member(rank).rank_info();
  info.rank = rank;
  return info;
}

std::uint64_t Cluster::id() const { return state_->group; }

std::vector<std::string> Cluster::exchange(const std::string& kind, std::string bytes,
                                           std::optional<double> timeout_seconds) {
  const Deadline deadline = deadline_of(timeout_seconds);
  const std::lock_guard lock(state_->mutex);
  const std::uint64_t sequence = ++state_->sequence;
  return state_->plane->exchange({state_->group, sequence},
                                 state_->is_everybody ? std::vector<int>() : state_->members,
                                 fmt::format("{} #{}", kind, sequence), std::move(bytes), deadline);
}

void Cluster::barrier(std::optional<double> timeout_seconds) {
  (void)exchange("barrier", "", timeout_seconds);
}

std::string Cluster::broadcast_bytes(std::string_view bytes, int root,
                                     std::optional<double> timeout_seconds) {
  state_->require_rank(root);
  std::vector<std::string> parts =
      exchange(fmt::format("broadcast_bytes from rank {}", root),
               std::string(rank() == root ? bytes : ""), timeout_seconds);
  return std::move(parts[static_cast<std::size_t>(root)]);
}

std::vector<std::string> Cluster::all_gather_bytes(std::string_view bytes,
                                                   std::optional<double> timeout_seconds) {
  return exchange("all_gather_bytes", std::string(bytes), timeout_seconds);
}

std::shared_ptr<Cluster> Cluster::subgroup(std::span<const int> ranks) {
  auto state = std::make_shared<State>();
  state->plane = state_->plane;
  state->is_everybody = false;
  state->members.reserve(ranks.size());
  bool is_member = false;
  for (const int each : ranks) {
    state_->require_rank(each);
    const int plane_rank = state_->members[static_cast<std::size_t>(each)];
    if (state->rank_of(plane_rank).has_value()) {
      throw ValueError(fmt::format("subgroup: rank {} is named twice", each));
    }
    if (each == rank()) {
      is_member = true;
      state->rank = static_cast<int>(state->members.size());
    }
    state->members.push_back(plane_rank);
  }
  if (!is_member)
    throw ValueError(fmt::format("subgroup: this worker, rank {}, is not in it", rank()));
  {
    const std::lock_guard lock(state_->mutex);
    const std::uint64_t count = ++state_->subgroup_counts[state->members];
    state->group = group_id(state_->group, state->members, count);
  }
  return std::make_shared<Cluster>(Passkey(), std::move(state));
}

void Cluster::abort_collective_ops(const std::string& text) { state_->plane->stop_all(text); }

std::shared_ptr<void> Cluster::listen(ClusterListener listener) {
  // Ranks are this cluster's; who is not in it concerns nobody here, but an abort concerns all.
  detail::MembershipListener translated;
  if (listener.on_lost) {
    translated.on_lost = [state = state_, tell = std::move(listener.on_lost)](
                             const RankInfo& member, const std::string& why) {
      const std::optional<int> rank = state->rank_of(member.rank);
      if (!rank.has_value()) return;
      RankInfo here = member;
      here.rank = *rank;
      tell(here, why);
    };
  }
  if (listener.on_abort) {
    translated.on_abort = [state = state_, tell = std::move(listener.on_abort)](
                              const RankInfo& origin, const std::string& text) {
      RankInfo here = origin;
      here.rank = state->rank_of(origin.rank).value_or(-1);
      tell(here, text);
    };
  }
  return state_->plane->listen(std::move(translated));
}

void Cluster::set_operation(std::string operation) {
  state_->plane->set_operation(std::move(operation));
}

}  // namespace crossdevice
