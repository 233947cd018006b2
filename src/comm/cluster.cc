// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/cluster.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>
#include <ostream>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/comm/detect_cluster_resolver.h"
#include "crossdevice/comm/job_news.h"
#include "crossdevice/comm/multi_worker_util.h"
#include "crossdevice/comm/secret_file.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/own_want.h"
#include "crossdevice/core/trace.h"
#include "crossdevice/device/shutdown.h"

#include "comm/detail/chief_address.h"
#include "comm/detail/cluster_state.h"
#include "comm/detail/control_plane.h"
#include "comm/detail/host_name.h"
#include "comm/detail/host_port.h"
#include "comm/detail/launcher_variables.h"
#include "comm/detail/meeting_place.h"
#include "comm/detail/own_tasks.h"
#include "comm/detail/tls_channel.h"
#include "comm/detail/ucx_kind.h"
#include "comm/detail/wire.h"

namespace crossdevice {
namespace {

using detail::ControlPlane;
using detail::ControlPlaneOptions;

Deadline deadline_of(std::optional<double> timeout_seconds) {
  return Deadline::after_timeout_seconds(
      timeout_seconds.has_value() ? timeout_seconds : environment().default_timeout_seconds);
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

/// Null: nothing is encrypted.
std::shared_ptr<const detail::TlsKey> tls_key(const std::string& secret) {
  if (!environment().tls) return nullptr;
  if (environment().transport == "ucx") throw ValueError(detail::kNoTlsOverUcx);
  return detail::TlsKey::make(secret);
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

Deadline meeting_deadline(std::optional<double> timeout_seconds) {
  for (const std::optional<double>& each :
       {timeout_seconds, environment().default_timeout_seconds}) {
    // What is no time at all is whoever checks the options' to complain of.
    if (each.has_value() && *each > 0) return Deadline::after_timeout_seconds(each);
  }
  return Deadline::after_timeout_seconds(kMeetingSeconds);
}

/// The right to be in the next round, while it lives.
class Cluster::State::Turn {
 public:
  /// Errors   DeadlineExceededError: another thread of this worker is still in one; then this round has not been counted, so the others' first one is this
  ///          worker's next one.
  Turn(State& state, const std::string& kind, const Deadline& deadline) : state_(state) {
    std::unique_lock lock(state_.turn_mutex);
    const auto is_free = [&] { return state_.round_under_way.empty(); };
    if (deadline.is_never()) {
      state_.turn_changed.wait(lock, is_free);
    } else if (!state_.turn_changed.wait_until(lock, deadline.moment(), is_free)) {
      const RankInfo self = state_.worker(state_.rank);
      throw DeadlineExceededError(
          fmt::format(
              "{} timed out before it began: another thread of this worker, {}, is still in "
              "{}, and a cluster has one round at a time",
              kind, to_string(self), state_.round_under_way),
          {.operation = {}, .culprits = {self}, .inputs_intact = true});
    }
    name_ = fmt::format("{} #{}", kind, state_.sequence + 1);
    state_.round_under_way = name_;
    sequence_ = ++state_.sequence;
  }
  ~Turn() {
    {
      const std::lock_guard lock(state_.turn_mutex);
      state_.round_under_way.clear();
    }
    state_.turn_changed.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  [[nodiscard]] std::uint64_t sequence() const { return sequence_; }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  State& state_;
  std::uint64_t sequence_ = 0;
  std::string name_;
};

Cluster::Cluster(Passkey /*key*/, std::shared_ptr<State> state) : state_(std::move(state)) {}
Cluster::~Cluster() = default;

std::chrono::duration<double> detail::ClusterInside::heartbeat_timeout(const Cluster& cluster) {
  return cluster.state_->plane_options.heartbeat_timeout;
}

const std::string& detail::ClusterInside::secret(const Cluster& cluster) {
  return cluster.state_->plane_options.secret;
}

std::shared_ptr<std::atomic<std::uint64_t>> detail::ClusterInside::last_completed(
    const Cluster& cluster) {
  return cluster.state_->last_completed;
}

std::shared_ptr<std::atomic<std::uint64_t>> detail::last_completed(const Cluster& cluster) {
  return ClusterInside::last_completed(cluster);
}

std::shared_ptr<void> detail::ClusterInside::add_operations(const Cluster& cluster,
                                                            std::function<std::string()> read) {
  return cluster.state_->plane->add_operations(std::move(read));
}

std::vector<std::string> detail::ClusterInside::ask(const Cluster& cluster,
                                                    std::span<const int> ranks,
                                                    const Deadline& deadline) {
  std::vector<int> of_plane;
  of_plane.reserve(ranks.size());
  for (const int each : ranks) {
    of_plane.push_back(cluster.state_->members[static_cast<std::size_t>(each)]);
  }
  return cluster.state_->plane->ask(of_plane, deadline);
}

std::optional<int> detail::ClusterInside::chief(const Cluster& cluster) {
  return cluster.state_->rank_of(0);
}

std::shared_ptr<Cluster> Cluster::join(const JoinOptions& options) {
  return join(*detect_cluster_resolver(), options);
}

std::shared_ptr<Cluster> Cluster::join(const ClusterResolver& resolver,
                                       const JoinOptions& options) try {
  WorkerIdentity identity = resolver.identity();
  detail::AgreedChief chief_of_all;
  if (identity.num_workers > 1 && identity.chief_address.empty()) {
    if (!resolver.can_all_gather()) {
      throw ValueError(to_string(identity) +
                       ": nobody says where rank 0 listens; CROSSDEVICE_CHIEF_ADDRESS does");
    }
    chief_of_all = detail::agree_on_chief(resolver, identity.rank);
    identity.chief_address = chief_of_all.addresses[0];
    identity.more_chief_addresses.assign(chief_of_all.addresses.begin() + 1,
                                         chief_of_all.addresses.end());
  }
  const std::string secret_file = options.secret_file.empty()
                                      ? process_environment()(kSecretFileVariable).value_or("")
                                      : std::string(options.secret_file);
  ControlPlaneOptions plane_options{
      .rank = identity.rank,
      .num_workers = identity.num_workers,
      .chief_address = identity.chief_address,
      .more_chief_addresses = identity.more_chief_addresses,
      .listener = std::move(chief_of_all.listener),
      .job = detail::number_of_job(identity.job_id),
      .addresses_by_rank = addresses_by_rank(identity),
      .secret = secret_file.empty() ? "" : detail::read_secret(secret_file),
      .host = detail::host_name(),
      .host_id = detail::host_id(),
      .heartbeat_timeout =
          require_positive(options.heartbeat_timeout_seconds, "heartbeat_timeout_seconds"),
      .stall_warning = require_positive(options.stall_warning_seconds, "stall_warning_seconds")};
  std::shared_ptr<detail::MeetingPlace> place;
  if (identity.num_workers > 1) {
    plane_options.tls = tls_key(plane_options.secret);
    const detail::HostPort chief = detail::parse_host_port(identity.chief_address);
    place = detail::MeetingPlace::open({.chief_host = chief.host,
                                        .chief_port = chief.port,
                                        .secret = plane_options.secret,
                                        .tls = plane_options.tls,
                                        .heartbeat_timeout = plane_options.heartbeat_timeout});
    plane_options.addresses = place->addresses();
  }
  auto plane = ControlPlane::join(plane_options, detail::join_deadline(options.timeout_seconds));
  plane_options.listener.reset();
  if (place) place->begin(plane->cluster_id(), identity.rank, plane->members());
  detail::Epoch epoch;
  epoch.members.reserve(static_cast<std::size_t>(identity.num_workers));
  for (int rank = 0; rank < identity.num_workers; ++rank) epoch.members.push_back(rank);
  if (identity.num_workers > 1) detail::add_own_task(identity.job, identity.task_index);
  log(LogSeverity::INFO, "joined: " + to_string(identity));
  auto state = std::make_shared<State>();
  state->place = std::move(place);
  state->plane_options = std::move(plane_options);
  state->begin(std::move(plane), std::move(epoch));
  return std::make_shared<Cluster>(Passkey(), std::move(state));
} catch (...) {
  detail::rethrow_own_want("joining the other workers");
}

void Cluster::State::begin(std::shared_ptr<ControlPlane> new_plane, detail::Epoch new_epoch) {
  plane = std::move(new_plane);
  epoch = std::move(new_epoch);
  rank = plane_options.rank;
  detail::set_trace_rank(rank, plane_options.host);
  members.reserve(epoch.members.size());
  for (int each = 0; each < plane_options.num_workers; ++each) members.push_back(each);
  group = group_id(plane->cluster_id(), members, 0);
  if (!place) return;
  // The plane outlives the handle, which waits for a call that is under way.
  watching = place->listen(
      [raw = plane.get(), number = epoch.number, size = epoch.members.size()](
          const detail::Epoch& next, bool is_member) {
        if (next.number <= number) return;
        raw->supersede(fmt::format("{}epoch {} has begun with {} of {} workers",
                                   is_member ? detail::kRebuilt : detail::kLeftOut, next.number,
                                   next.members.size(), size),
                       /*is_left_out=*/!is_member);
      },
      [raw = plane.get(), number = epoch.number](const detail::Epoch& now, int of_job,
                                                 const std::string& call) {
        const auto caller = std::lower_bound(now.members.begin(), now.members.end(), of_job);
        if (now.number != number || caller == now.members.end() || *caller != of_job) return;
        const auto origin = static_cast<int>(caller - now.members.begin());
        // No number: `origin` is another in a subgroup, which puts its own one before.
        raw->stop_here(origin, fmt::format("it called {} and waits for this worker", call));
      });
}

void Cluster::set_completed(std::uint64_t sequence) {
  state_->last_completed->store(sequence, std::memory_order_relaxed);
}

std::ostream& operator<<(std::ostream& out, const CompletedOperation& operation) {
  if (operation == CompletedOperation{}) return out << "none";
  return out << '#' << operation.sequence << " of epoch " << operation.epoch;
}

std::chrono::nanoseconds Cluster::stall_warning() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(state_->plane_options.stall_warning);
}
std::uint64_t Cluster::epoch() const { return state_->epoch.number; }

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
  return state_->worker(rank);
}

std::uint64_t Cluster::id() const { return state_->group; }

std::vector<std::string> Cluster::exchange(const std::string& kind, std::string bytes,
                                           const Deadline& deadline, const RoundListener& on_end) {
  detail::require_not_forked();  // a thread of the parent's may be in a round for ever
  // What is refused here the others never hear of: it must not count, or this worker would be a round ahead of them for good.
  if (bytes.size() > ControlPlane::kMaxPartBytes) {
    throw ValueError(fmt::format("{}: {} bytes, more than the {} that one round may carry", kind,
                                 bytes.size(), ControlPlane::kMaxPartBytes));
  }
  const State::Turn turn(*state_, kind, deadline);
  return state_->plane->exchange({state_->group, turn.sequence()},
                                 state_->is_everybody ? std::vector<int>() : state_->members,
                                 turn.name(), std::move(bytes), deadline, on_end);
}

void Cluster::barrier(std::optional<double> timeout_seconds) {
  barrier(deadline_of(timeout_seconds));
}
void Cluster::barrier(const Deadline& deadline) { (void)exchange("barrier", "", deadline); }

std::string Cluster::broadcast_bytes(std::string_view bytes, int root,
                                     std::optional<double> timeout_seconds) {
  return broadcast_bytes(bytes, root, deadline_of(timeout_seconds));
}
std::string Cluster::broadcast_bytes(std::string_view bytes, int root, const Deadline& deadline) {
  state_->require_rank(root);
  std::vector<std::string> parts = exchange(fmt::format("broadcast_bytes from rank {}", root),
                                            std::string(rank() == root ? bytes : ""), deadline);
  return std::move(parts[static_cast<std::size_t>(root)]);
}

std::vector<std::string> Cluster::all_gather_bytes(std::string_view bytes,
                                                   std::optional<double> timeout_seconds) {
  return all_gather_bytes(bytes, deadline_of(timeout_seconds));
}
std::vector<std::string> Cluster::all_gather_bytes(std::string_view bytes, const Deadline& deadline,
                                                   const RoundListener& on_end) {
  return exchange("all_gather_bytes", std::string(bytes), deadline, on_end);
}

std::shared_ptr<Cluster> Cluster::subgroup(std::span<const int> ranks) {
  if (ranks.empty()) throw ValueError("subgroup: no ranks");
  auto state = std::make_shared<State>();
  state->place = state_->place;
  state->plane = state_->plane;
  state->watching = state_->watching;
  state->epoch = state_->epoch;
  state->plane_options.stall_warning = state_->plane_options.stall_warning;
  state->plane_options.heartbeat_timeout = state_->plane_options.heartbeat_timeout;
  state->plane_options.secret = state_->plane_options.secret;
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
  if (!is_member) return nullptr;
  {
    const std::lock_guard lock(state_->subgroup_mutex);
    const std::uint64_t count = ++state_->subgroup_counts[state->members];
    state->group = group_id(state_->group, state->members, count);
  }
  return std::make_shared<Cluster>(Passkey(), std::move(state));
}

std::shared_ptr<Cluster> Cluster::duplicate() {
  std::vector<int> ranks(state_->members.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return subgroup(ranks);
}

void Cluster::abort_collective_ops(const std::string& text) { state_->plane->stop_all(text); }

void Cluster::give_up_round(const std::string& text) {
  std::uint64_t sequence = 0;
  {
    const std::lock_guard lock(state_->turn_mutex);
    if (state_->round_under_way.empty()) return;
    sequence = state_->sequence;
  }
  state_->plane->give_up({state_->group, sequence}, text);
}

void Cluster::post(std::string_view bytes, std::optional<int> to) {
  detail::require_not_forked();
  if (bytes.size() > detail::Post::kMaxBytes) {
    throw ValueError(fmt::format("post: {} bytes, more than the {} that one may have", bytes.size(),
                                 detail::Post::kMaxBytes));
  }
  std::vector<int> ranks = state_->members;
  if (to.has_value()) {
    state_->require_rank(*to);
    ranks = {state_->members[static_cast<std::size_t>(*to)]};
  }
  state_->plane->post(state_->group, std::move(ranks), std::string(bytes));
}

bool Cluster::has_same_chief(const Cluster& other) const {
  return state_->plane == other.state_->plane;
}

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
  if (listener.on_post) {
    translated.on_post = [state = state_, tell = std::move(listener.on_post)](
                             std::uint64_t group, int from, std::string_view bytes) {
      const std::optional<int> rank = state->rank_of(from);
      if (group == state->group && rank.has_value()) tell(*rank, bytes);
    };
  }
  return state_->plane->listen(std::move(translated));
}

void Cluster::set_operation(std::string operation) {
  state_->plane->set_operation(std::move(operation));
}

void Cluster::enter_operation(std::string_view kind, std::uint64_t sequence) {
  state_->plane->enter_operation(kind, sequence);
}
void Cluster::leave_operation() { state_->plane->leave_operation(); }

}  // namespace crossdevice
