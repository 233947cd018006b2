// SPDX-License-Identifier: Apache-2.0
/// What the members of a SharedMemoryGroup read of each other: a page of flags, then two slots.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "crossdevice/comm/group_operation.h"
#include "crossdevice/comm/shared_memory_group.h"

#include "comm/detail/operation_note.h"

namespace crossdevice::detail {

/// Of most processors.
inline constexpr std::size_t kLineBytes = 64;

/// What a member has announced, until the next but one.
struct alignas(128) Announcement {
  static constexpr std::size_t kHeadInFirstLine = 48;  // bytes

  std::atomic<std::uint32_t> phase{0};              // of it, or of its end: what waiters poll
  std::uint64_t digest = 0;                         // of the operation
  std::byte head[SharedMemoryGroup::kHeadBytes]{};  // what comes along with it
};

/// A member's flags; written by it alone but for num_sleepers.
///
/// What the others wait for in every operation is the first line of its announcement; the lines behind that hold what comes along; who waits asks for them
/// as well. Beside it they read only given_up_at, whose line nobody writes until something is wrong; what is written in every operation but read by none lies
/// in neither line. Lines come in pairs, because processors fetch them so.
///
/// Ordering: what is announced is written before Announcement::phase (release; whoever reads that with acquire sees it), and reason before given_up_at.
/// Announcement::phase, given_up_at and num_sleepers are sequentially consistent among each other where an announcement exposes memory, and at ends: of a
/// member that gives up and one that announces, at least one sees the other; and a sleeper is not overlooked by who advances the phase. Announcements that
/// expose slots alone are only released, and have none of this; see SharedMemoryGroup::State::advance().
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): what waiters poll has lines of its own
struct alignas(128) GroupFlags {
  static constexpr std::uint32_t kHeard = 1;
  static constexpr std::uint32_t kLeft = 2;
  static constexpr std::uint32_t kMissesOne = 3;
  static constexpr std::uint32_t kFailed = 4;
  static constexpr std::uint32_t kLate = 5;

  /// Whether a member gave up of itself, of which the control plane knows nothing.
  [[nodiscard]] static constexpr bool is_its_own(std::uint32_t reason) {
    return reason == 0 || reason == kFailed || reason == kLate;
  }

  std::atomic<std::uint32_t> phase{0};  // announcements and ends so far; what sleepers sleep on
  std::atomic<std::uint32_t> num_sleepers{0};  // who may wait on `phase`
  alignas(128) std::atomic<std::uint32_t> given_up_at{
      0};  // the phase in which it has; 0: it has not
  // Why: 0: it has waited too long or found a difference; kHeard: what the control plane says, which all hear; kLeft: it has left, whole;
  // kMissesOne: another has left; kFailed: an error of its own, of which the others know nothing; kLate: its time was over before it had done its part.
  std::atomic<std::uint32_t> reason{0};
  Announcement announcements[2];             // in turns, as the slots
  alignas(128) OperationNote note;           // what it does in this group; read by who misses it
  alignas(64) GroupOperation operations[2];  // for who sees another digest than its own
};
static_assert(offsetof(GroupFlags, announcements) == 256 && sizeof(Announcement) == 512);
static_assert(offsetof(Announcement, head) + Announcement::kHeadInFirstLine == kLineBytes);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

inline constexpr std::size_t kFlagsBytes = 4096;
static_assert(sizeof(GroupFlags) <= kFlagsBytes);

}  // namespace crossdevice::detail
