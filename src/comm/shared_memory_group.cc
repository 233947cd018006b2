// SPDX-License-Identifier: Apache-2.0
/// Segments are opened through /proc/PID/fd, which the kernel allows to processes of the same user, and accepted only if they are the file that
/// their owner announced (device and inode), so that a process that took over a number is not believed.
#include "crossdevice/comm/shared_memory_group.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "crossdevice/core/cpu_relax.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/export.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/usable_cores.h"
#include "crossdevice/device/shutdown.h"

#include "comm/detail/foreign_file.h"
#include "comm/detail/group_lines.h"
#include "comm/detail/group_news.h"
#include "comm/detail/packed_operation.h"
#include "comm/detail/shared_futex.h"
#include "comm/detail/wait_span.h"
#include "comm/detail/wire.h"
#include "comm/detail/wire_cores.h"

namespace crossdevice {
namespace {

using detail::Descriptor;
using detail::FileIdentity;
using detail::GroupFlags;
using detail::GroupNews;
using detail::identity_of;
using detail::Mapping;
using detail::open_foreign;
using detail::sleep_on;
using detail::wake_all;
using Clock = std::chrono::steady_clock;

/// Looks without giving up the core; most meetings are over by then. More would hold up whoever is waited for, if it wants this very core.
constexpr int kPauses = 200;
/// How long to try before sleeping: a sleep and the waking up cost about as much.
constexpr std::chrono::microseconds kSpinTime{60};
/// A sleeper looks this often whether somebody is gone, which no flag in shared memory says.
constexpr std::chrono::milliseconds kLongestSleep{5};
/// How long a member waits for news that another has had from the control plane; they take some 0.1 ms.
constexpr std::chrono::seconds kNewsTime{5};
/// The same where a member has left, for which there may be a reason.
constexpr std::chrono::milliseconds kReasonTime{200};

/// Of the last system call that failed.
std::string error_text() { return std::generic_category().message(errno); }

}  // namespace

struct CROSSDEVICE_HIDDEN SharedMemoryGroup::State {
  struct Peer {
    int place = 0;                    // rank in this group
    RankInfo info;                    // as errors and the log call it
    std::unique_ptr<Mapping> memory;  // flags and slots
    std::map<std::uint64_t, std::unique_ptr<Mapping>> segments;
    [[nodiscard]] GroupFlags& flags() const {
      return *std::launder(reinterpret_cast<GroupFlags*>(memory->begin()));
    }
  };

  std::shared_ptr<Cluster> cluster;
  int rank = 0;
  int num_workers = 1;
  std::size_t slot_size = 0;
  std::vector<std::set<int>> usable_cores;  // by rank
  bool has_core_of_its_own = true;
  std::vector<Peer> peers;         // by rank, this worker's among them
  std::vector<GroupFlags*> flags;  // of the peers: all that a call reads of them
  GroupFlags* own_flags = nullptr;
  std::uint32_t phase = 0;
  std::uint64_t num_announced = 0;
  std::uint64_t sequence = 0;  // of the operation under way
  bool may_be_written = false;
  std::string broken_text;  // empty: not broken

  GroupNews news;
  std::function<void()> look;

  [[nodiscard]] Peer& peer(int of_rank) { return peers[static_cast<std::size_t>(of_rank)]; }
  [[nodiscard]] const Peer& peer(int of_rank) const {
    return peers[static_cast<std::size_t>(of_rank)];
  }
  /// As this group calls somebody of whom the cluster speaks; also one who is in the job alone.
  [[nodiscard]] RankInfo named(const RankInfo& member) const {
    const bool is_member = member.rank >= 0 && member.rank < num_workers;
    return is_member ? peer(member.rank).info : member;
  }
  [[nodiscard]] std::byte* slot_of(int of_rank, std::uint64_t announcement) const {
    return peer(of_rank).memory->begin() + detail::kFlagsBytes + announcement % 2 * slot_size;
  }
  [[nodiscard]] GroupOperation& announced(int of_rank, std::uint64_t announcement) const {
    return peer(of_rank).flags().operations[announcement % 2];
  }
  /// Whether a member has given up in this phase or before. One that did so later had come to this phase, which is whole.
  [[nodiscard]] bool has_given_up(const GroupFlags& member) const {
    const std::uint32_t at = member.given_up_at.load(std::memory_order_seq_cst);
    return at != 0 && static_cast<std::int32_t>(at - phase) <= 0;
  }
  /// A member that is missed, with what it does instead.
  [[nodiscard]] static RankInfo seen(const Peer& member) {
    RankInfo info = member.info;
    const std::string operation = member.flags().note.read();
    info.last_operation = operation.empty() || operation == detail::OperationNote::kNone
                              ? "no operation of this group"
                              : operation;
    return info;
  }
  [[nodiscard]] std::string name() const;
  /// Whether a rank has come to this worker's phase. Counters wrap around.
  [[nodiscard]] bool has_come(int of_rank) const {
    const GroupFlags& member = *flags[static_cast<std::size_t>(of_rank)];
    const std::uint32_t theirs = member.phase.load(std::memory_order_acquire);
    return static_cast<std::int32_t>(theirs - phase) >= 0;
  }

  void meet(const std::vector<RankInfo>& names, const Deadline& deadline);
  void leave();
  [[nodiscard]] const Peer* find_leaver() const;
  std::string open_peer(int of_rank, const std::string& announcement);
  void require_whole() const;
  void advance(Touches touches);
  void await_phase(const Deadline& deadline, bool is_end);
  void require_equal_operations();
  bool await_peer(int of_rank, const Deadline& deadline);
  void end_waiting(bool is_end);
  [[nodiscard]] bool is_over_for(int of_rank, const Deadline& deadline) const;
  [[nodiscard]] GroupNews::Kind await_news(const Deadline& deadline) const;
  void warn_of_stall() const;
  [[noreturn]] void fail(const Deadline& deadline, bool is_end);
  [[noreturn]] void fail_by_absence(const Peer& owner);
  [[noreturn]] void fail_because(GroupNews::Kind reason, const Deadline& deadline, bool is_end);
  [[noreturn]] void break_with(StatusCode code, const std::string& text,
                               std::vector<RankInfo> culprits);
};

/// Maps a member's flags and slots as it announced them; returns what went wrong.
std::string SharedMemoryGroup::State::open_peer(int of_rank, const std::string& announcement) {
  const std::size_t size_bytes = detail::kFlagsBytes + 2 * slot_size;
  detail::WireReader theirs(announcement);
  Peer& opening = peer(of_rank);
  if (theirs.number<std::uint8_t>() == 0) return to_string(opening.info) + " has no shared memory";
  const auto fd = theirs.number<std::int32_t>();
  FileIdentity announced;
  announced.device = theirs.number<std::uint64_t>();
  announced.inode = theirs.number<std::uint64_t>();
  announced.size_bytes = size_bytes;
  if (theirs.number<std::uint64_t>() != slot_size) {
    return to_string(opening.info) + " has slots of another size";
  }
  usable_cores.push_back(detail::get_cores(theirs));
  const std::unique_ptr<Descriptor> opened = open_foreign(opening.info.pid, fd);
  if (opened->get() < 0 || !(identity_of(opened->get()) == announced)) {
    return fmt::format("the memory of {} cannot be opened: {}", to_string(opening.info),
                       opened->get() < 0 ? error_text() : "it is another file");
  }
  opening.memory = std::make_unique<Mapping>(opened->get(), size_bytes);
  return opening.memory->begin() == nullptr ? "no address space for shared memory" : "";
}

void SharedMemoryGroup::State::meet(const std::vector<RankInfo>& names, const Deadline& deadline) {
  rank = cluster->rank();
  num_workers = cluster->num_workers();
  if (cluster->num_local_workers() != num_workers) {
    throw ValueError(
        fmt::format("{} of {} workers are on this machine: only workers on one machine "
                    "share memory",
                    cluster->num_local_workers(), num_workers));
  }
  const std::size_t size_bytes = detail::kFlagsBytes + 2 * slot_size;
  const Descriptor own(::memfd_create("crossdevice group", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const bool is_made =
      own.get() >= 0 && ::ftruncate(own.get(), static_cast<off_t>(size_bytes)) == 0;
  if (is_made) (void)::fcntl(own.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  const FileIdentity identity = identity_of(own.get()).value_or(FileIdentity{});

  // Everybody gets an answer, also where something failed: a worker that threw alone would leave the others waiting.
  detail::WireWriter mine;
  mine.number(static_cast<std::uint8_t>(is_made)).number(std::int32_t{own.get()});
  mine.number(identity.device).number(identity.inode).number(std::uint64_t{slot_size});
  detail::put_cores(mine, detail::usable_cores());
  std::string trouble = is_made ? "" : std::string("no shared memory: ") + error_text();
  peers.resize(static_cast<std::size_t>(num_workers));
  for (int each = 0; each < num_workers; ++each) {
    peer(each).place = each;
    peer(each).info =
        names.empty() ? cluster->worker(each) : names.at(static_cast<std::size_t>(each));
  }
  const std::vector<std::string> all = cluster->all_gather_bytes(mine.take(), deadline);
  for (int each = 0; each < num_workers && trouble.empty(); ++each) {
    trouble = open_peer(each, all[static_cast<std::size_t>(each)]);
  }
  if (trouble.empty()) new (peer(rank).memory->begin()) GroupFlags;
  // The flags exist on all before anybody looks at them, and descriptors stay open until all have opened them.
  const std::vector<std::string> troubles = cluster->all_gather_bytes(trouble, deadline);
  for (int each = 0; each < num_workers; ++each) {
    const std::string& text = troubles[static_cast<std::size_t>(each)];
    if (!text.empty()) {
      throw FailedPreconditionError(fmt::format("rank {}: {}", peer(each).info.rank, text));
    }
  }
  for (const Peer& each : peers) flags.push_back(&each.flags());
  own_flags = &peer(rank).flags();
  has_core_of_its_own = detail::can_have_a_core_each(usable_cores);
  news.listen(*cluster, [this](const RankInfo& member) { return named(member); });
}

void SharedMemoryGroup::State::require_whole() const {
  if (broken_text.empty()) return;
  throw FailedPreconditionError("the group of workers is broken since " + broken_text);
}

/// Of what is under way all has been done here; the others wait for nothing more.
void SharedMemoryGroup::State::leave() {
  if (!broken_text.empty()) return;
  // Why, the control plane may know: what it says counts where it comes soon.
  own_flags->reason.store(GroupFlags::kLeft, std::memory_order_seq_cst);
  own_flags->given_up_at.store(phase + 1, std::memory_order_seq_cst);
  wake_all(own_flags->phase);
}

/// Why MEMORY needs a fence, in the total order of the seq_cst operations: of a member that announces and one that gives up, each of which then looks at
/// the other's flag, at least one sees the other. So either the first touches no memory of the second's, or the second moves its own away. Where nobody
/// touches but slots, which no member that has given up fills again, nothing is to be decided: the store may still be under way while this worker looks at
/// the others' flags, and their lines come meanwhile. Then a sleeper, too, may be missed that falls asleep this very moment: it wakes up by itself after
/// kLongestSleep.
void SharedMemoryGroup::State::advance(Touches touches) {
  if (touches == Touches::MEMORY) {
    own_flags->phase.store(++phase, std::memory_order_seq_cst);
  } else {
    own_flags->phase.store(++phase, std::memory_order_release);
  }
  if (own_flags->num_sleepers.load(std::memory_order_seq_cst) != 0) wake_all(own_flags->phase);
}

bool SharedMemoryGroup::State::is_over_for(int of_rank, const Deadline& deadline) const {
  if (has_come(of_rank)) return true;
  if (news.kind() != GroupNews::Kind::NONE || deadline.has_passed()) return true;
  return std::any_of(flags.begin(), flags.end(),
                     [this](const GroupFlags* each) { return has_given_up(*each); });
}

/// Whether the peer has come.
bool SharedMemoryGroup::State::await_peer(int of_rank, const Deadline& deadline) {
  detail::WaitSpan wait(detail::kSharedMemoryWait);
  if (has_core_of_its_own) {
    for (int i = 0; i < kPauses; ++i) {
      if (has_come(of_rank)) return true;
      detail::cpu_relax();
    }
  }
  const Clock::time_point spin_end = Clock::now() + kSpinTime;
  while (Clock::now() < spin_end) {
    if (has_come(of_rank)) return true;
    std::this_thread::yield();
  }
  wait.set_long(spin_end - kSpinTime);
  GroupFlags& theirs = *flags[static_cast<std::size_t>(of_rank)];
  Clock::time_point warning = spin_end + cluster->stall_warning();
  while (!is_over_for(of_rank, deadline)) {
    if (look) look();
    const std::uint32_t seen = theirs.phase.load(std::memory_order_seq_cst);
    theirs.num_sleepers.fetch_add(1, std::memory_order_seq_cst);
    if (!has_come(of_rank)) {
      const auto rest = std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::min(deadline.moment(), Clock::now() + kLongestSleep) - Clock::now());
      if (rest.count() > 0) sleep_on(theirs.phase, seen, rest);
    }
    theirs.num_sleepers.fetch_sub(1, std::memory_order_relaxed);
    if (Clock::now() < warning) continue;
    warn_of_stall();
    warning = Clock::now() + cluster->stall_warning();
  }
  return has_come(of_rank);
}

void SharedMemoryGroup::State::warn_of_stall() const {
  std::string names;
  for (const Peer& each : peers) {
    if (!has_come(each.place)) names += (names.empty() ? "" : ", ") + to_string(seen(each));
  }
  if (names.empty()) return;  // it has just come
  log(LogSeverity::WARNING,
      fmt::format("rank {} still waits in {} for {}", peer(rank).info.rank, name(), names));
}

void SharedMemoryGroup::State::await_phase(const Deadline& deadline, bool is_end) {
  for (int each = 0; each < num_workers; ++each) {
    bool comes = has_come(each);
    try {
      comes = comes || await_peer(each, deadline);
    } catch (const std::exception& error) {
      end_waiting(is_end);
      broken_text = error.what();
      throw;
    }
    if (!comes) fail(deadline, is_end);
  }
  // First: who sees a difference gives up, and who sees it give up shall hear why. All have announced, so all see it.
  if (!is_end) require_equal_operations();
  // What begins after an abort fails, also where all come.
  if (!is_end && news.kind() == GroupNews::Kind::ABORTED) {
    fail_because(GroupNews::Kind::ABORTED, deadline, is_end);
  }
  // Where memory is exposed: of a member that has given up and this one at least one knows of the other; if it is this one, it touches nothing.
  for (const GroupFlags* const each : flags) {
    if (has_given_up(*each)) fail(deadline, is_end);
  }
}

std::string SharedMemoryGroup::State::name() const {
  return fmt::format("{} #{}", announced(rank, num_announced).kind.data(), sequence);
}

void SharedMemoryGroup::State::require_equal_operations() {
  const auto is_equal = [this, slot = num_announced % 2](const GroupFlags* member) {
    return member->digests[slot] == own_flags->digests[slot];
  };
  if (std::all_of(flags.begin(), flags.end(), is_equal)) return;
  for (const Peer& each : peers) {
    if (is_equal(&each.flags())) continue;
    own_flags->given_up_at.store(phase, std::memory_order_seq_cst);
    break_with(StatusCode::INTERNAL,
               fmt::format("workers make different calls: rank {} {}, {} {}", peer(rank).info.rank,
                           to_string(announced(rank, num_announced)), to_string(each.info),
                           to_string(announced(each.place, num_announced))),
               {each.info});
  }
}

/// What the control plane says. A member that has given up because of it may be seen before the news has come here: then this waits for them, so that
/// all name the same reason. Not where a member has given up because its time was over, which is the reason then.
GroupNews::Kind SharedMemoryGroup::State::await_news(const Deadline& deadline) const {
  bool has_anybody_heard = false;
  bool is_certain = false;
  for (const Peer& each : peers) {
    if (each.place == rank || !has_given_up(each.flags())) continue;
    const std::uint32_t why = each.flags().reason.load(std::memory_order_seq_cst);
    if (why == 0 || why == GroupFlags::kFailed) return GroupNews::Kind::NONE;
    has_anybody_heard = true;
    is_certain |= why == GroupFlags::kHeard;
  }
  const Clock::time_point limit = std::min(
      deadline.moment(),
      Clock::now() + (is_certain ? Clock::duration(kNewsTime) : Clock::duration(kReasonTime)));
  while (has_anybody_heard && news.kind() == GroupNews::Kind::NONE && Clock::now() < limit) {
    sleep_on(own_flags->phase, phase, kLongestSleep);
  }
  return news.kind();
}

void SharedMemoryGroup::State::fail(const Deadline& deadline, bool is_end) {
  fail_because(await_news(deadline), deadline, is_end);
}

/// The member that has left, if that is the reason: not where another had given up before it for a reason of its own.
const SharedMemoryGroup::State::Peer* SharedMemoryGroup::State::find_leaver() const {
  const Peer* leaver = nullptr;
  for (const Peer& each : peers) {
    if (each.place == rank || !has_given_up(each.flags())) continue;
    const std::uint32_t why = each.flags().reason.load(std::memory_order_seq_cst);
    if (why == 0 || why == GroupFlags::kFailed) return nullptr;
    if (why == GroupFlags::kLeft) leaver = &each;
  }
  return leaver;
}

/// Gives up, so that the others do not wait for this worker.
void SharedMemoryGroup::State::end_waiting(bool is_end) {
  own_flags->given_up_at.store(phase, std::memory_order_seq_cst);
  wake_all(own_flags->phase);
  // Whoever has announced may be at work on this worker's memory; so may one that has not, if this one sees its announcement only now.
  may_be_written = is_end;
  for (int each = 0; each < num_workers; ++each) {
    may_be_written |= each != rank && has_come(each);
  }
}

void SharedMemoryGroup::State::fail_because(GroupNews::Kind reason, const Deadline& deadline,
                                            bool is_end) {
  const Peer* const leaver =
      reason == GroupNews::Kind::NONE && !deadline.has_passed() ? find_leaver() : nullptr;
  own_flags->reason.store(reason != GroupNews::Kind::NONE ? GroupFlags::kHeard
                          : leaver != nullptr             ? GroupFlags::kMissesOne
                                                          : 0,
                          std::memory_order_seq_cst);
  end_waiting(is_end);
  std::vector<RankInfo> missing;
  std::string names;
  for (int each = 0; each < num_workers; ++each) {
    if (has_come(each)) continue;
    missing.push_back(seen(peer(each)));
    names += (names.empty() ? "" : ", ") + to_string(missing.back());
  }
  const std::string name = this->name();
  if (reason != GroupNews::Kind::NONE) {
    const GroupNews::Item item = news.item();
    const bool is_loss = item.kind == GroupNews::Kind::LOST;
    break_with(is_loss ? StatusCode::UNAVAILABLE : StatusCode::ABORTED, name + ": " + item.text,
               {item.culprit});
  }
  if (leaver != nullptr) {
    break_with(StatusCode::UNAVAILABLE,
               fmt::format("{}: {} is gone: it has left", name, to_string(leaver->info)),
               {leaver->info});
  }
  // Whoever has failed has done so before those that have given up because of it, so all that see these see it.
  for (const Peer& each : peers) {
    if (each.place == rank || !has_given_up(each.flags())) continue;
    if (each.flags().reason.load(std::memory_order_seq_cst) != GroupFlags::kFailed) continue;
    break_with(StatusCode::ABORTED,
               fmt::format("{}: {} has failed by itself", name, to_string(each.info)), {each.info});
  }
  for (const Peer& each : peers) {
    if (each.place == rank || !has_given_up(each.flags())) continue;
    if (each.flags().reason.load(std::memory_order_seq_cst) == GroupFlags::kLeft) continue;
    if (deadline.has_passed()) break;
    break_with(StatusCode::DEADLINE_EXCEEDED,
               fmt::format("{}: {} has given up{}", name, to_string(each.info),
                           names.empty() ? "" : " waiting for " + names),
               missing.empty() ? std::vector<RankInfo>{each.info} : missing);
  }
  break_with(StatusCode::DEADLINE_EXCEEDED,
             fmt::format("{} timed out: waiting for {}", name, names.empty() ? "nobody" : names),
             missing);
}

/// Whoever has announced a segment and has not given up keeps it, if it lives. So its process has ended: the others wait for what the control plane says.
void SharedMemoryGroup::State::fail_by_absence(const Peer& owner) {
  for (const Peer& each : peers) {
    if (has_given_up(each.flags())) fail(Deadline::never(), /*is_end=*/true);
  }
  own_flags->reason.store(GroupFlags::kHeard, std::memory_order_seq_cst);
  end_waiting(/*is_end=*/true);
  break_with(StatusCode::UNAVAILABLE,
             fmt::format("{}: {} is gone: its memory is not there any more", name(),
                         to_string(owner.info)),
             {owner.info});
}

void SharedMemoryGroup::State::break_with(StatusCode code, const std::string& text,
                                          std::vector<RankInfo> culprits) {
  broken_text = text;
  throw_op_error(code, text,
                 {.operation = {}, .culprits = std::move(culprits), .inputs_intact = true});
}

SharedMemoryGroup::SharedMemoryGroup(std::shared_ptr<Cluster> cluster, std::size_t slot_bytes,
                                     const std::vector<RankInfo>& names, const Deadline& deadline)
    : state_(std::make_unique<State>()) {
  state_->cluster = std::move(cluster);
  state_->slot_size = (slot_bytes + 4095) / 4096 * 4096;
  state_->meet(names, deadline);
}

SharedMemoryGroup::~SharedMemoryGroup() {
  if (detail::is_forked_child()) {
    (void)state_.release();  // its mappings are not there
    return;
  }
  state_->leave();
}

int SharedMemoryGroup::rank() const { return state_->rank; }
int SharedMemoryGroup::num_workers() const { return state_->num_workers; }
std::size_t SharedMemoryGroup::slot_bytes() const { return state_->slot_size; }

std::span<std::byte> SharedMemoryGroup::slot() {
  return {state_->slot_of(state_->rank, state_->num_announced + 1), state_->slot_size};
}

void SharedMemoryGroup::announce(const GroupOperationInfo& operation, std::uint64_t sequence,
                                 Touches touches, std::span<const std::byte> head) {
  detail::require_not_forked();
  if (head.size() > kHeadBytes) {
    throw ValueError(fmt::format("a head has up to {} bytes, not {}", kHeadBytes, head.size()));
  }
  state_->require_whole();
  state_->sequence = sequence;
  GroupFlags& own = *state_->own_flags;
  const std::size_t slot = ++state_->num_announced % 2;
  GroupOperation packed;  // here, where it can stay in registers
  detail::pack_operation_into(operation, packed);
  packed.sequence = sequence;
  const std::uint64_t digest = detail::digest_of_packed(packed);
  own.operations[slot] = packed;
  // The line that the others look at is written all at once: each time they look in between, it has to be fetched back.
  if (!head.empty()) std::memcpy(own.heads[slot], head.data(), head.size());
  own.digests[slot] = digest;
  state_->advance(touches);
  own.note.set(packed.kind, sequence);  // while the others' lines are on their way
}

void SharedMemoryGroup::await_announcements(const Deadline& deadline) {
  state_->await_phase(deadline, /*is_end=*/false);
}

std::span<const std::byte> SharedMemoryGroup::slot_of(int rank) const {
  return {state_->slot_of(rank, state_->num_announced), state_->slot_size};
}

std::span<const std::byte> SharedMemoryGroup::head_of(int rank) const {
  return state_->flags[static_cast<std::size_t>(rank)]->heads[state_->num_announced % 2];
}

void SharedMemoryGroup::finish() { state_->advance(Touches::MEMORY); }

void SharedMemoryGroup::await_ends(const Deadline& deadline) {
  state_->await_phase(deadline, /*is_end=*/true);
}

std::byte* SharedMemoryGroup::map(int rank, const SharedLocation& location,
                                  std::size_t size_bytes) {
  State::Peer& peer = state_->peer(rank);
  auto entry = peer.segments.find(location.segment_id);
  if (entry == peer.segments.end()) {
    const std::unique_ptr<Descriptor> opened = open_foreign(peer.info.pid, location.segment_fd);
    if (opened->get() < 0 && (errno == ENOENT || errno == ESRCH)) state_->fail_by_absence(peer);
    const std::optional<FileIdentity> identity = identity_of(opened->get());
    if (!identity.has_value() || identity->size_bytes != location.segment_size_bytes) {
      throw InternalError(fmt::format("segment {} of {} cannot be opened: {}", location.segment_id,
                                      to_string(peer.info),
                                      identity.has_value() ? "it has another size" : error_text()));
    }
    auto mapping = std::make_unique<Mapping>(opened->get(), location.segment_size_bytes);
    if (mapping->begin() == nullptr) {
      throw ResourceExhaustedError(fmt::format("no address space for segment {} of {}",
                                               location.segment_id, to_string(peer.info)));
    }
    entry = peer.segments.emplace(location.segment_id, std::move(mapping)).first;
  }
  const Mapping& mapping = *entry->second;
  if (location.offset_bytes > mapping.size_bytes() ||
      size_bytes > mapping.size_bytes() - location.offset_bytes) {
    throw InternalError(fmt::format("{} announced bytes beyond the end of segment {}",
                                    to_string(peer.info), location.segment_id));
  }
  return mapping.begin() + location.offset_bytes;
}

void SharedMemoryGroup::while_waiting(std::function<void()> look) {
  state_->look = std::move(look);
}

void SharedMemoryGroup::require_whole() const { state_->require_whole(); }

void SharedMemoryGroup::leave_operation() { state_->own_flags->note.clear(); }

void SharedMemoryGroup::give_up(const std::string& text) {
  leave_operation();
  if (!state_->broken_text.empty()) return;
  // What it has come to is whole; what comes next is not.
  state_->own_flags->given_up_at.store(state_->phase + 1, std::memory_order_seq_cst);
  wake_all(state_->own_flags->phase);
  state_->may_be_written = true;
  state_->broken_text = text;
}

void SharedMemoryGroup::fail_alone(const std::string& text) {
  if (state_->broken_text.empty()) {
    state_->own_flags->reason.store(GroupFlags::kFailed, std::memory_order_seq_cst);
  }
  give_up(text);
}

bool SharedMemoryGroup::may_be_written() const { return state_->may_be_written; }

}  // namespace crossdevice
