// SPDX-License-Identifier: Apache-2.0
/// When the packs of a request were worked on, as bars of the timeline.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "crossdevice/collective/pack.h"
#include "crossdevice/core/trace.h"
#include "crossdevice/core/trace_clock.h"

#include "collective/detail/chunk_plan.h"

namespace crossdevice::detail {

/// In place of PackTimes where no bars are wanted: the pieces of a plan are worked on, and nothing else.
struct Untimed {
  template <class Work>
  void work_on(const ElementRange& /*piece*/, const Work& work) const {
    work();
  }
};

/// The pieces of a plan lie in the order of its packs, but threads work on several at a time, and on those of one pack while the last ones of the pack before
/// are not done. Bars of one track must not overlap: where packs do, the later one's bar begins where the former's ends.
class PackTimes {
 public:
  /// One load: whether the trace is written is known since the operation's own bar.
  [[nodiscard]] static bool are_wanted() noexcept {
    return (trace_state.load(std::memory_order_relaxed) & kTraceToFile) != 0;
  }

  /// Nothing where there is no memory for them: no operation ends because a trace cannot be.
  [[nodiscard]] static std::optional<PackTimes> if_wanted(const ChunkPlan& plan) noexcept {
    try {
      if (are_wanted()) return std::optional<PackTimes>(std::in_place, plan);
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): as said
    }
    return std::nullopt;
  }

  /// `plan` must outlive it, and stay as it is.
  explicit PackTimes(const ChunkPlan& plan) : plan_(plan), times_(plan.pieces().size()) {}

  /// Does the work on a piece of the plan, and notes when.
  ///
  /// Threads  any, each piece on one.
  template <class Work>
  void work_on(const ElementRange& piece, const Work& work) {
    Time& time = times_[static_cast<std::size_t>(&piece - plan_.pieces().data())];
    time.begin_ns = trace_clock_ns();
    work();
    time.end_ns = trace_clock_ns();
  }
  /// The bar of the next pack, which is `pack`; none where nothing of it was done. For the thread that has seen all pieces end.
  void record(const Pack& pack) noexcept;

 private:
  struct Time {
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;  // 0: it was not worked on to its end
  };
  const ChunkPlan& plan_;
  std::vector<Time> times_;  // by piece
  std::size_t next_piece_ = 0;
  std::int64_t last_end_ns_ = 0;
};

}  // namespace crossdevice::detail
