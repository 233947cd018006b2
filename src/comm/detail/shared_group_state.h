// SPDX-License-Identifier: Apache-2.0
/// What a SharedMemoryGroup is to its own files.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/comm/shared_memory_group.h"
#include "crossdevice/core/export.h"

#include "comm/detail/foreign_file.h"
#include "comm/detail/group_lines.h"
#include "comm/detail/group_news.h"
#include "comm/detail/packed_operation.h"

namespace crossdevice {

struct CROSSDEVICE_HIDDEN SharedMemoryGroup::State {
  using Clock = std::chrono::steady_clock;
  using GroupFlags = detail::GroupFlags;
  using GroupNews = detail::GroupNews;
  using Mapping = detail::Mapping;

  /// A sleeper looks this often whether somebody is gone, which no flag in shared memory says.
  static constexpr std::chrono::milliseconds kLongestSleep{5};
  /// Who lives answers within some tenths of a millisecond, but on a machine that is busy.
  static constexpr std::chrono::milliseconds kAnswerTime{100};

  struct Peer {
    int place = 0;                    // rank in this group
    RankInfo info;                    // as errors and the log call it
    std::unique_ptr<Mapping> memory;  // flags and slots
    std::uint64_t file_process = 0;   // in the marks of its segments' files
    std::map<std::uint64_t, std::unique_ptr<Mapping>> segments;
    [[nodiscard]] GroupFlags& flags() const {
      return *std::launder(reinterpret_cast<GroupFlags*>(memory->begin()));
    }
  };

  std::shared_ptr<Cluster> cluster;
  int rank = 0;
  int num_workers = 1;
  bool is_part = false;  // of a larger group, in whose operations its own are
  std::size_t slot_size = 0;
  std::vector<std::set<int>> usable_cores;  // by rank
  bool has_core_of_its_own = true;
  std::vector<Peer> peers;         // by rank, this worker's among them
  std::vector<GroupFlags*> flags;  // of the peers: all that a call reads of them
  GroupFlags* own_flags = nullptr;
  std::array<std::vector<const void*>, 2> heads;  // by rank, of either announcement
  std::uint32_t phase = 0;
  std::uint64_t num_announced = 0;
  std::size_t head_size = 0;   // of what was announced last
  std::uint64_t sequence = 0;  // of the operation under way
  bool may_be_written = false;
  std::string broken_text;          // empty: not broken
  std::vector<RankInfo> broken_by;  // whom that blames
  std::string note_on_error;        // what an error says besides
  /// Who had not come to a phase when this worker's time was over.
  struct Missed {
    std::uint32_t phase = 0;
    int place = -1;
  };
  Missed missed;

  std::shared_ptr<Cluster> meeting;   // for who finds that operations differ
  std::vector<ToldCall> different{};  // by place; empty: none were found, or it has been said

  GroupNews news;
  std::function<void()> look;
  std::shared_ptr<void> telling;  // the cluster what this worker does in this group; ends first

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
  /// Members that are missed, with what they do instead. Who is in nothing of this group is asked, for which there is kAnswerTime.
  [[nodiscard]] std::vector<RankInfo> seen(const std::vector<const Peer*>& missing) const;
  /// `answer`: what it says that it does; empty: it says nothing.
  [[nodiscard]] std::string operation_of(const Peer& member, std::string_view answer) const;
  [[nodiscard]] std::string name() const;
  /// The one that this worker has come to.
  [[nodiscard]] detail::Announcement& announcement_of(GroupFlags& member) const {
    return member.announcements[num_announced % 2];
  }
  /// Whether a rank has come to this worker's phase. Counters wrap around.
  [[nodiscard]] bool has_come(int of_rank,
                              std::memory_order order = std::memory_order_acquire) const {
    GroupFlags& member = *flags[static_cast<std::size_t>(of_rank)];
    const std::uint32_t theirs = announcement_of(member).phase.load(order);
    return static_cast<std::int32_t>(theirs - phase) >= 0;
  }

  /// has_come(). Asks first for the lines of the rank's head behind the one that is looked at: they are written before it, so they come while it does, and not
  /// one after the other.
  [[nodiscard]] bool look_at(int of_rank) const {
    const detail::Announcement& theirs = announcement_of(*flags[static_cast<std::size_t>(of_rank)]);
    for (std::size_t at = detail::Announcement::kHeadInFirstLine; at < head_size;
         at += detail::kLineBytes) {
      __builtin_prefetch(theirs.head + at);
    }
    return has_come(of_rank);
  }

  /// Whether a rank has not come to this worker's phase, or has only while this worker was already giving up.
  [[nodiscard]] bool is_missed(int of_rank) const {
    return !has_come(of_rank) || (missed.phase == phase && missed.place == of_rank);
  }

  void meet(const std::vector<RankInfo>& names, const Deadline& deadline);
  void leave();
  [[nodiscard]] const Peer* find_leaver() const;
  /// Another member that has given up for this reason; null: none.
  [[nodiscard]] const Peer* find_given_up(std::uint32_t reason) const;
  std::string open_peer(int of_rank, const std::string& announcement);
  void require_no_trouble(const std::vector<std::string>& troubles, const Deadline& deadline);
  std::unique_ptr<Mapping> open_segment(const Peer& owner, const SharedLocation& location);
  void require_whole() const;
  template <class Write>
  void announce(const detail::KindWords& kind, std::uint64_t digest, std::uint64_t number,
                Touches touches, std::span<const std::byte> head, const Write& write);
  void advance(Touches touches);
  void await_phase(const Deadline& deadline, bool is_end);
  [[nodiscard]] bool is_well(bool is_end) const;
  void require_equal_operations();
  bool await_peer(int of_rank, const Deadline& deadline);
  void end_waiting(bool is_end);
  [[nodiscard]] bool is_over_for(int of_rank, const Deadline& deadline) const;
  [[nodiscard]] GroupNews::Kind await_news(const Deadline& deadline) const;
  void warn_of_stall() const;
  [[noreturn]] void fail(const Deadline& deadline, bool is_end);
  [[noreturn]] void fail_by_absence(const Peer& owner, const std::string& what);
  [[noreturn]] void fail_as_latecomer();
  [[noreturn]] void fail_because(GroupNews::Kind reason, const Deadline& deadline, bool is_end);
  [[noreturn]] void break_with(StatusCode code, const std::string& text,
                               std::vector<RankInfo> culprits);
};

}  // namespace crossdevice
