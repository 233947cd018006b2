// SPDX-License-Identifier: Apache-2.0
/// One job over all chunks of a batch, as direct_reduce.cc; its argument why no two threads race holds here: a piece is a range of one
/// tensor's elements, pieces are disjoint, and whoever runs a piece touches its elements of that tensor's inputs and outputs alone,
/// and rows of its own.
#include "crossdevice/collective/scheduled_reduce.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "crossdevice/device/host_thread_pool.h"
#include "crossdevice/device/scratch_lease.h"

#include "collective/detail/cache_size.h"
#include "collective/detail/chunk_plan.h"
#include "collective/detail/operation_gate.h"
#include "collective/detail/pack_times.h"
#include "collective/detail/recipe_runner.h"

namespace crossdevice {
namespace {

// Up to here the caller is done before another thread has woken up.
constexpr std::size_t kInlineTrafficBytes = std::size_t{128} << 10;

/// Elements of one tensor that have one recipe. To the chunk plan each stretch is a tensor, so that it cuts long ones and puts small ones
/// together.
struct Stretch {
  std::size_t tensor = 0;
  std::size_t begin = 0;
  const ReductionRecipe* recipe = nullptr;  // null: no elements
};

/// What one call needs besides its arguments.
struct Scratch {
  std::vector<Stretch> stretches;
  std::vector<DirectReduceTensor> as_tensors;  // the stretches
  detail::RecipeRunner::Needs needs;           // of all stretches
  detail::ChunkPlan plan;
  std::unique_ptr<std::atomic<std::uint32_t>[]> pieces_left;  // of each tensor
  std::size_t capacity = 0;                                   // of pieces_left

  void add(const DirectReduceTensor& tensor, const Stretch& stretch, std::size_t count) {
    stretches.push_back(stretch);
    as_tensors.push_back({tensor.dtype, count, tensor.inputs, tensor.outputs});
    if (stretch.recipe != nullptr) needs.include(tensor, *stretch.recipe);
  }
  void start_counting(std::size_t num_tensors) {
    if (num_tensors > capacity) {
      pieces_left = std::make_unique<std::atomic<std::uint32_t>[]>(num_tensors);
      capacity = num_tensors;
    }
    for (std::size_t t = 0; t < num_tensors; ++t) {
      pieces_left[t].store(0, std::memory_order_relaxed);
    }
    const auto pieces = plan.pieces_per_tensor();
    for (std::size_t i = 0; i < stretches.size(); ++i) {
      pieces_left[stretches[i].tensor].fetch_add(pieces[i], std::memory_order_relaxed);
    }
  }
  void clear() {
    stretches.clear();
    as_tensors.clear();
    needs = {};
  }
};

/// Which of the runners a thread gets, and with it how large the recipes are that this one has met before, is chance: without this a call could find one that
/// has still to grow however often it was made.
void reserve_runners(std::size_t num_runners, const detail::RecipeRunner::Needs& needs) {
  if (num_runners == 0) return;
  const detail::ScratchLease<detail::RecipeRunner> runner;
  runner->reserve(needs);
  reserve_runners(num_runners - 1, needs);  // while this one is taken
}

/// Cuts the ranges of a pack where its recipes change.
void add_stretches(const ScheduledReduceRequest& request, const ScheduledPack& scheduled,
                   Scratch& scratch) {
  const ReductionPlan& plan = *scheduled.plan;
  auto part = plan.parts.begin();
  std::size_t at = 0;  // in the pack
  for (const ElementRange& range : scheduled.pack.ranges) {
    const DirectReduceTensor& tensor = request.tensors[range.tensor];
    if (range.count == 0) {
      scratch.add(tensor, {.tensor = range.tensor, .begin = range.begin, .recipe = nullptr}, 0);
    }
    std::size_t done = 0;
    while (done < range.count) {
      while (part->range.end() <= at) ++part;
      const std::size_t count = std::min(range.count - done, part->range.end() - at);
      scratch.add(tensor,
                  {.tensor = range.tensor,
                   .begin = range.begin + done,
                   .recipe = &plan.recipes[part->recipe]},
                  count);
      done += count;
      at += count;
    }
  }
}

/// The state that the threads of one call share.
class ScheduledReduction {
 public:
  ScheduledReduction(const ScheduledReduceRequest& request, const Scratch& scratch)
      : request_(request),
        scratch_(scratch),
        gate_(request.deadline, request.observer),
        stores_(scratch.plan.traffic_bytes() > detail::second_level_cache_bytes()
                    ? StoreMode::STREAMING
                    : StoreMode::CACHED) {}

  /// Does not throw: the pool's threads could not pass it on. `times`: Untimed or PackTimes.
  template <class Times>
  void run_chunk(std::size_t chunk, Times& times) noexcept {
    if (!gate_.may_continue()) return;
    try {
      run_pieces(chunk, times);
    } catch (...) {
      gate_.stop();
      if (!has_failed_.exchange(true)) error_ = std::current_exception();
    }
  }
  /// After the last chunk.
  ///
  /// Errors   std::bad_alloc: no memory for intermediate rows.
  [[nodiscard]] DirectReduceOutcome finish() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
    return gate_.outcome();
  }

 private:
  template <class Times>
  void run_pieces(std::size_t chunk, Times& times) {
    const detail::ScratchLease<detail::RecipeRunner> runner;
    for (const ElementRange& piece : scratch_.plan.chunk(chunk)) {
      const Stretch& stretch = scratch_.stretches[piece.tensor];
      times.work_on(piece, [&] {
        if (stretch.recipe == nullptr) return;
        runner->run(request_.op, request_.tensors[stretch.tensor], *stretch.recipe,
                    {.begin = stretch.begin + piece.begin, .count = piece.count}, stores_);
      });
      if (request_.observer == nullptr) continue;
      // Acquire and release, as in direct_reduce.cc: who takes it to zero sees what the other pieces' threads have written.
      if (scratch_.pieces_left[stretch.tensor].fetch_sub(1, std::memory_order_acq_rel) == 1) {
        request_.observer->tensor_completed(stretch.tensor);
      }
    }
  }

  const ScheduledReduceRequest& request_;
  const Scratch& scratch_;
  detail::OperationGate gate_;
  StoreMode stores_;
  std::atomic<bool> has_failed_ = false;
  std::exception_ptr error_;  // written by who set has_failed_; read when all chunks have ended
};

}  // namespace

DirectReduceOutcome scheduled_reduce(const ScheduledReduceRequest& request) {
  HostThreadPool& pool = HostThreadPool::instance();
  const detail::ScratchLease<Scratch> lease;
  Scratch& scratch = *lease;
  for (const ScheduledPack& pack : request.packs) add_stretches(request, pack, scratch);
  scratch.plan.rebuild(request.op, scratch.as_tensors, {}, pool.num_threads());
  if (request.observer != nullptr) scratch.start_counting(request.tensors.size());

  ScheduledReduction reduction(request, scratch);
  const std::size_t num_chunks = scratch.plan.num_chunks();
  const auto run_chunks = [&](auto& times) {
    if (scratch.plan.traffic_bytes() <= kInlineTrafficBytes) {
      for (std::size_t chunk = 0; chunk < num_chunks; ++chunk) reduction.run_chunk(chunk, times);
    } else {
      reserve_runners(std::min(num_chunks, pool.num_threads()), scratch.needs);
      pool.run(num_chunks, [&](std::size_t chunk) { reduction.run_chunk(chunk, times); });
    }
  };
  if (std::optional<detail::PackTimes> times = detail::PackTimes::if_wanted(scratch.plan)) {
    run_chunks(*times);
    for (const ScheduledPack& pack : request.packs) times->record(pack.pack);
  } else {
    detail::Untimed untimed;
    run_chunks(untimed);
  }
  return reduction.finish();
}

}  // namespace crossdevice
