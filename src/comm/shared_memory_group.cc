// SPDX-License-Identifier: Apache-2.0
/// Files are opened through /proc/PID/fd, which the kernel allows to processes of the same user, and accepted only if they are what their owner
/// announced, so that neither a process nor a file that took over a number is believed. The group's own are known by device and inode: their
/// owners keep them open until all have looked. Segments of pools come and go; they are known by their mark (MemoryFileMark).
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
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/core/cpu_relax.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/export.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/outliers.h"
#include "crossdevice/core/own_want.h"
#include "crossdevice/core/usable_cores.h"
#include "crossdevice/device/memory_file.h"
#include "crossdevice/device/shutdown.h"

#include "comm/detail/cluster_state.h"
#include "comm/detail/foreign_file.h"
#include "comm/detail/packed_operation.h"
#include "comm/detail/shared_futex.h"
#include "comm/detail/shared_group_state.h"
#include "comm/detail/transport_kind.h"
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

/// Looks without giving up the core; most meetings are over by then. More would hold up whoever is waited for, if it wants this very core.
constexpr int kPauses = 200;
/// How long to try before sleeping: a sleep and the waking up cost about as much.
constexpr std::chrono::microseconds kSpinTime{60};
/// For what members say of calls that differ.
constexpr std::chrono::seconds kExplanationTime{1};

/// A copy whose first bytes are written last.
void copy_from_the_end(std::byte* to, const std::byte* from, std::size_t size_bytes) {
  constexpr std::size_t kBlock = 16;
  if (size_bytes < kBlock) {
    if (size_bytes > 0) std::memcpy(to, from, size_bytes);
    return;
  }
  std::size_t at = size_bytes - kBlock;
  std::memcpy(to + at, from + at, kBlock);
  for (at = (size_bytes - 1) / kBlock * kBlock; at > 0;) {
    at -= kBlock;
    std::memcpy(to + at, from + at, kBlock);
  }
}

/// Of the last system call that failed.
std::string error_text() { return std::generic_category().message(errno); }

/// What keeps a member from the group begins with one of these.
constexpr char kWant = 'W';  // it lacks something
constexpr char kOther = 'T';

/// Whom an error blames that has come to `self`; itself, where that is nobody.
std::vector<RankInfo> blamed_by(const std::exception& error, const RankInfo& self) {
  const auto* const known = dynamic_cast<const OpError*>(&error);
  if (known == nullptr || known->culprits().empty()) return {self};
  return {known->culprits().begin(), known->culprits().end()};
}

}  // namespace

/// Maps a member's flags and slots as it announced them; returns what went wrong. ResourceExhaustedError, std::bad_alloc: this worker lacks something.
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
  opening.file_process = theirs.number<std::uint64_t>();
  usable_cores.push_back(detail::get_cores(theirs));
  const std::unique_ptr<Descriptor> opened = open_foreign(opening.info.pid, fd);
  const int error = opened->get() < 0 ? errno : 0;
  if (detail::is_want({error, std::generic_category()})) {
    throw ResourceExhaustedError(fmt::format("the memory of {} cannot be opened: {}",
                                             to_string(opening.info),
                                             std::generic_category().message(error)));
  }
  if (error != 0 || !(identity_of(opened->get()) == announced)) {
    const bool is_forbidden = error == EACCES || error == EPERM;
    return fmt::format(
        "the memory of {} cannot be opened: {}{}", to_string(opening.info),
        error != 0 ? std::generic_category().message(error) : "it is another file",
        is_forbidden ? fmt::format("; only processes of one user share memory, and a worker of "
                                   "another one needs a {} of its own",
                                   kHostIdVariable)
                     : "");
  }
  opening.memory = std::make_unique<Mapping>(opened->get(), size_bytes);
  if (opening.memory->begin() == nullptr) {
    throw ResourceExhaustedError("no address space for shared memory");
  }
  return "";
}

/// Who lacks something comes first: the others only find that it has made nothing. Where somebody's memory is not there, all meet once more, as all have the same
/// troubles: if it has died meanwhile, that meeting says so, and else it is there and its memory cannot be reached.
void SharedMemoryGroup::State::require_no_trouble(const std::vector<std::string>& troubles,
                                                  const Deadline& deadline) {
  for (const char kind : {kWant, kOther}) {
    for (int each = 0; each < num_workers; ++each) {
      const std::string& trouble = troubles[static_cast<std::size_t>(each)];
      if (!trouble.starts_with(kind)) continue;
      const RankInfo& info = peer(each).info;
      const std::string text = fmt::format("rank {}: {}", info.rank, trouble.substr(1));
      if (kind == kOther) {
        (void)cluster->all_gather_bytes("", deadline);
        throw FailedPreconditionError(text);
      }
      throw ResourceExhaustedError(text, {.operation = {}, .culprits = {info}});
    }
  }
}

void SharedMemoryGroup::State::meet(const std::vector<RankInfo>& names, const Deadline& deadline) {
  rank = cluster->rank();
  num_workers = cluster->num_workers();
  is_part = !names.empty();
  if (cluster->num_local_workers() != num_workers) {
    throw ValueError(
        fmt::format("{} of {} workers are on this machine: only workers on one machine "
                    "share memory",
                    cluster->num_local_workers(), num_workers));
  }
  const std::size_t size_bytes = detail::kFlagsBytes + 2 * slot_size;
  const Descriptor own(detail::make_memory_file(size_bytes, "crossdevice group"));
  const bool is_made = own.get() >= 0;
  std::string trouble = is_made ? "" : kWant + ("no shared memory: " + error_text());
  const FileIdentity identity = identity_of(own.get()).value_or(FileIdentity{});

  // Everybody gets an answer, also where something failed: a worker that threw alone would leave the others waiting.
  detail::WireWriter mine;
  mine.number(static_cast<std::uint8_t>(is_made)).number(std::int32_t{own.get()});
  mine.number(identity.device).number(identity.inode).number(std::uint64_t{slot_size});
  mine.number(detail::memory_file_process());
  detail::put_cores(mine, detail::usable_cores());
  peers.resize(static_cast<std::size_t>(num_workers));
  for (int each = 0; each < num_workers; ++each) {
    peer(each).place = each;
    peer(each).info =
        names.empty() ? cluster->worker(each) : names.at(static_cast<std::size_t>(each));
  }
  const std::vector<std::string> all = cluster->all_gather_bytes(mine.take(), deadline);
  try {
    for (int each = 0; each < num_workers && trouble.empty(); ++each) {
      const std::string text = open_peer(each, all[static_cast<std::size_t>(each)]);
      if (!text.empty()) trouble = kOther + text;
    }
  } catch (const ResourceExhaustedError& error) {
    trouble = kWant + std::string(error.what());
  } catch (const std::bad_alloc& error) {
    trouble = kWant + std::string(error.what());
  } catch (const std::exception& error) {  // a message that is none
    trouble = kOther + std::string(error.what());
  }
  if (trouble.empty()) new (peer(rank).memory->begin()) GroupFlags;
  // The flags exist on all before anybody looks at them, and descriptors stay open until all have opened them.
  require_no_trouble(cluster->all_gather_bytes(trouble, deadline), deadline);
  for (const Peer& each : peers) {
    flags.push_back(&each.flags());
    for (std::size_t i = 0; i < heads.size(); ++i) {
      heads[i].push_back(each.flags().announcements[i].head);
    }
  }
  own_flags = &peer(rank).flags();
  has_core_of_its_own = detail::can_have_a_core_each(usable_cores);
  meeting = cluster->duplicate();
  telling = detail::ClusterInside::add_operations(*cluster,
                                                  [own = own_flags] { return own->note.read(); });
  news.listen(*cluster, [this](const RankInfo& member) { return named(member); });
}

void SharedMemoryGroup::State::require_whole() const {
  if (broken_text.empty()) return;
  throw FailedPreconditionError("the group of workers is broken since " + broken_text,
                                {.operation = {}, .culprits = broken_by});
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
///
/// Why the announcement's own phase is enough to poll: all that have come to this phase have announced as often as this worker, or one of the digests
/// differs; and nobody announces for the next but one time before all have come to this one. Why no sleeper is overlooked where MEMORY is exposed: it reads the
/// flags' phase, counts itself, looks at the announcement once more, and sleeps if the flags' phase is still that one. If it has read the new phase, it sees the
/// announcement, which was stored before; if the old one, it sees the announcement or is seen by who stored it, who wakes it or has changed the phase before
/// it sleeps.
void SharedMemoryGroup::State::advance(Touches touches) {
  ++phase;
  std::atomic<std::uint32_t>& polled = announcement_of(*own_flags).phase;
  if (touches == Touches::MEMORY) {
    polled.store(phase, std::memory_order_seq_cst);
  } else {
    polled.store(phase, std::memory_order_release);
  }
  own_flags->phase.store(phase, std::memory_order_release);
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
  detail::WaitSpan wait(detail::kSharedMemoryWait,
                        [this] { return announced(rank, num_announced).size_bytes; });
  if (has_core_of_its_own) {
    for (int i = 0; i < kPauses; ++i) {
      if (look_at(of_rank)) return true;
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
    if (!has_come(of_rank, std::memory_order_seq_cst)) {
      const auto rest = std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::min(deadline.moment(), Clock::now() + kLongestSleep) - Clock::now());
      if (rest.count() > 0) sleep_on(theirs.phase, seen, rest);
    }
    theirs.num_sleepers.fetch_sub(1, std::memory_order_relaxed);
    if (Clock::now() < warning) continue;
    warn_of_stall();
    warning = Clock::now() + cluster->stall_warning();
  }
  // Who looks all the while and finds its time just over has missed also one that comes this very moment. Who finds it long over was stopped.
  const bool comes = has_come(of_rank);
  const bool has_just_missed =
      deadline.has_passed() && Clock::now() - deadline.moment() < 10 * kLongestSleep;
  if (!comes || has_just_missed) missed = {.phase = phase, .place = of_rank};
  return comes;
}

void SharedMemoryGroup::State::warn_of_stall() const {
  std::vector<const Peer*> missing;
  for (const Peer& each : peers) {
    if (!has_come(each.place)) missing.push_back(&each);
  }
  const std::vector<RankInfo> ranks = seen(missing);
  if (missing.empty() || has_come(missing[0]->place)) return;  // it has just come
  log(LogSeverity::WARNING, fmt::format("rank {} still waits in {} for {}", peer(rank).info.rank,
                                        name(), detail::names_of(ranks)));
}

void SharedMemoryGroup::State::await_phase(const Deadline& deadline, bool is_end) {
  for (int each = 0; each < num_workers; ++each) {
    bool comes = look_at(each);
    try {
      comes = comes || await_peer(each, deadline);
    } catch (const std::exception& error) {
      end_waiting(is_end);
      broken_text = error.what();
      broken_by = blamed_by(error, peer(rank).info);
      throw;
    }
    if (!comes) fail(deadline, is_end);
  }
  if (is_well(is_end)) return;
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

/// What await_phase() looks for once all have come, in one walk: nobody has announced another operation or has given up, and nothing was aborted.
bool SharedMemoryGroup::State::is_well(bool is_end) const {
  if (!is_end && news.kind() == GroupNews::Kind::ABORTED) return false;
  const std::uint64_t own = announcement_of(*own_flags).digest;
  // At an end the digests are what they were.
  return std::all_of(flags.begin(), flags.end(), [&](GroupFlags* each) {
    return announcement_of(*each).digest == own && !has_given_up(*each);
  });
}

/// All have announced, and whoever sees a difference announces nothing any more: everybody reads the same versions.
void SharedMemoryGroup::State::require_equal_operations() {
  const auto digest_of = [this](std::size_t place) {
    return announcement_of(peers[place].flags()).digest;
  };
  const std::vector<std::size_t> places = detail::outliers(
      peers.size(), [&](std::size_t i, std::size_t j) { return digest_of(i) != digest_of(j); });
  if (places.empty()) return;
  own_flags->given_up_at.store(phase, std::memory_order_seq_cst);
  for (const Peer& each : peers) {
    different.push_back(
        {.rank = each.info.rank, .operation = announced(each.place, num_announced)});
  }
  std::vector<RankInfo> culprits;
  culprits.reserve(places.size());
  for (const std::size_t place : places) culprits.push_back(peers[place].info);
  break_with(StatusCode::INTERNAL, describe_difference(different), std::move(culprits));
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
  state_->require_whole();  // one that has given up may still be read, by who is late
  return {state_->slot_of(state_->rank, state_->num_announced + 1), state_->slot_size};
}

/// `write` puts the operation where those look who see another digest than their own.
template <class Write>
void SharedMemoryGroup::State::announce(const detail::KindWords& kind, std::uint64_t digest,
                                        std::uint64_t number, Touches touches,
                                        std::span<const std::byte> head, const Write& write) {
  detail::require_not_forked();
  if (head.size() > kHeadBytes) {
    throw ValueError(fmt::format("a head has up to {} bytes, not {}", kHeadBytes, head.size()));
  }
  require_whole();
  sequence = number;
  GroupFlags& own = *own_flags;
  const std::size_t slot = ++num_announced % 2;
  detail::Announcement& announcement = own.announcements[slot];
  write(own.operations[slot]);
  // The line that the others look at is written last and all at once: each time they look in between, it has to be fetched back.
  copy_from_the_end(announcement.head, head.data(), head.size());
  head_size = head.size();
  announcement.digest = digest;
  advance(touches);
  own.note.set(kind, number);  // while the others' lines are on their way
}

void SharedMemoryGroup::announce(const GroupOperationInfo& operation, std::uint64_t sequence,
                                 Touches touches, std::span<const std::byte> head) {
  const detail::KindWords kind = detail::words_of_kind(operation.kind);
  state_->announce(
      kind, detail::digest_of_operation(operation, kind), sequence, touches, head,
      [&](GroupOperation& own) { detail::pack_operation_into(operation, kind, sequence, own); });
}

void SharedMemoryGroup::announce(const PreparedOperation& operation, std::uint64_t sequence,
                                 Touches touches, std::span<const std::byte> head) {
  state_->announce(detail::words_of(operation.packed), operation.digest, sequence, touches, head,
                   [&](GroupOperation& own) {
                     own = operation.packed;
                     own.sequence = sequence;
                   });
}

void SharedMemoryGroup::await_announcements(const Deadline& deadline) {
  state_->await_phase(deadline, /*is_end=*/false);
}

std::span<const std::byte> SharedMemoryGroup::slot_of(int rank) const {
  return {state_->slot_of(rank, state_->num_announced), state_->slot_size};
}

std::span<const void* const> SharedMemoryGroup::heads() const {
  return state_->heads[state_->num_announced % 2];
}

void SharedMemoryGroup::finish() { state_->advance(Touches::MEMORY); }

void SharedMemoryGroup::await_ends(const Deadline& deadline) {
  state_->await_phase(deadline, /*is_end=*/true);
}

/// Why nothing is mapped but what was announced, however long ago. While this worker was stopped, the owner may have given up, let go of the segment and
/// opened another one of the same size under its number, for a call of which this worker knows nothing; or the owner has ended, and its own number is
/// another process'. So the numbers are resolved once, and the descriptor that came of it is both looked at and mapped: whatever the owner closes or
/// opens in between, this one stays the file it is. It is the announced one if it has the mark, which is in its name: the file had that before the
/// owner had a number for it, keeps it, and shares it with no other file. A size may be another file's, and so may an inode's number, later.
///
/// Why it stays safe to write to: the mapping keeps the file, which nobody uses for anything else. Whether its owner still sees what is written there
/// is the owner's affair; see SharedDirectReduce::State::withdraw(). Why no access raises SIGBUS: the file has the announced size, which
/// make_memory_file() has sealed.
std::unique_ptr<detail::Mapping> SharedMemoryGroup::State::open_segment(
    const Peer& owner, const SharedLocation& location) {
  const std::unique_ptr<Descriptor> opened = open_foreign(owner.info.pid, location.segment_fd);
  const int error = opened->get() < 0 ? errno : 0;
  const auto text = [&](std::string_view what) {
    return fmt::format("segment {} of {}: {}", location.segment_id, to_string(owner.info), what);
  };
  if (error == ENOENT || error == ESRCH) fail_by_absence(owner, text("it is not there any more"));
  // A socket or the like, or a directory, which nobody can open so.
  bool is_another_file = error == ENXIO || error == EISDIR;
  if (error == 0) {
    is_another_file = !detail::has_mark(opened->get(), {owner.file_process, location.segment_id});
  }
  if (is_another_file) {
    fail_by_absence(owner, text(fmt::format("it is not there any more: its descriptor, {}, is "
                                            "another file now, which is left alone",
                                            location.segment_fd)));
  }
  if (error != 0) {
    const std::string why = text("it cannot be opened: " + std::generic_category().message(error));
    if (detail::is_want({error, std::generic_category()})) throw ResourceExhaustedError(why);
    throw InternalError(why);
  }
  const std::optional<FileIdentity> identity = identity_of(opened->get());
  if (!identity.has_value() || identity->size_bytes != location.segment_size_bytes) {
    throw InternalError(text("it has another size than announced"));
  }
  auto mapping = std::make_unique<Mapping>(opened->get(), location.segment_size_bytes);
  if (mapping->begin() == nullptr) throw ResourceExhaustedError(text("no address space for it"));
  return mapping;
}

std::byte* SharedMemoryGroup::map(int rank, const SharedLocation& location,
                                  std::size_t size_bytes) {
  State::Peer& peer = state_->peer(rank);
  auto entry = peer.segments.find(location.segment_id);
  if (entry == peer.segments.end()) {
    entry = peer.segments.emplace(location.segment_id, state_->open_segment(peer, location)).first;
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

RankInfo SharedMemoryGroup::info() const { return state_->peer(state_->rank).info; }

void SharedMemoryGroup::require_whole() const { state_->require_whole(); }

bool SharedMemoryGroup::has_found_difference() const { return !state_->different.empty(); }

/// All have found it, so all come, but who is stopped or dies.
std::string SharedMemoryGroup::explain_difference(const CallDetails& details) {
  std::vector<ToldCall> calls = std::exchange(state_->different, {});
  try {
    const std::vector<std::string> all = state_->meeting->all_gather_bytes(
        encode_details(details), Deadline::after(kExplanationTime));
    for (std::size_t place = 0; place < calls.size(); ++place) {
      calls[place].details = decode_details(all[place]);
    }
  } catch (const OpError&) {  // NOLINT(bugprone-empty-catch): then as much as is known
  }
  state_->broken_text = describe_difference(calls);
  return state_->broken_text;
}

void SharedMemoryGroup::leave_operation() { state_->own_flags->note.clear(); }

void SharedMemoryGroup::give_up(const std::string& text) {
  leave_operation();
  if (!state_->broken_text.empty()) return;
  // What it has come to is whole; what comes next is not.
  state_->own_flags->given_up_at.store(state_->phase + 1, std::memory_order_seq_cst);
  wake_all(state_->own_flags->phase);
  state_->may_be_written = true;
  state_->broken_text = text;
  state_->broken_by = {info()};
}

void SharedMemoryGroup::fail_alone(const std::exception& error) {
  if (state_->broken_text.empty()) {
    const bool is_late = dynamic_cast<const DeadlineExceededError*>(&error) != nullptr;
    state_->own_flags->reason.store(is_late ? GroupFlags::kLate : GroupFlags::kFailed,
                                    std::memory_order_seq_cst);
  }
  give_up(error.what());
}

bool SharedMemoryGroup::may_be_written() const { return state_->may_be_written; }

}  // namespace crossdevice
