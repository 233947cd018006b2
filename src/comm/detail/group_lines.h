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

/// A member's flags; written by it alone but for num_sleepers.
///
/// What the others read in every operation is one cache line, `phase` to `heads`; the rest stays in its owner's cache until something is wrong. The
/// lines come in pairs, because processors fetch them so.
///
/// Ordering: what is announced is written before `phase` (release; whoever reads the phase with acquire sees it), and reason before given_up_at.
/// `phase`, `given_up_at` and num_sleepers are sequentially consistent among each other where an announcement exposes memory, and at ends: of a member
/// that gives up and one that announces, at least one sees the other; and a sleeper is not overlooked by who advances the phase. Announcements that expose
/// slots alone are only released, and have none of this; see SharedMemoryGroup::State::advance().
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): what waiters poll has a line of its own
struct alignas(128) GroupFlags {
  static constexpr std::uint32_t kHeard = 1;
  static constexpr std::uint32_t kLeft = 2;
  static constexpr std::uint32_t kMissesOne = 3;
  static constexpr std::uint32_t kFailed = 4;

  std::atomic<std::uint32_t> phase{0};  // announcements and ends so far; what sleepers wait on
  std::atomic<std::uint32_t> num_sleepers{0};  // who may wait on `phase`
  std::atomic<std::uint32_t> given_up_at{0};   // the phase in which it has given up; 0: it has not
  // Why: 0: it has waited too long or found a difference; kHeard: what the control plane says, which all hear; kLeft: it has left, whole;
  // kMissesOne: another has left; kFailed: an error of its own, of which the others know nothing.
  std::atomic<std::uint32_t> reason{0};
  std::uint64_t digests[2]{};  // of the operation in each slot; kept as long as that
  std::byte heads[2][SharedMemoryGroup::kHeadBytes]{};  // what comes along with it
  alignas(128) OperationNote note;           // what it does in this group; read by who misses it
  alignas(64) GroupOperation operations[2];  // for who sees another digest than its own
};
static_assert(offsetof(GroupFlags, note) == 128 && offsetof(GroupFlags, heads) == 32);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

inline constexpr std::size_t kFlagsBytes = 4096;
static_assert(sizeof(GroupFlags) <= kFlagsBytes);

}  // namespace crossdevice::detail
