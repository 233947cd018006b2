// SPDX-License-Identifier: Apache-2.0
// A few job slots that callers fill and everybody takes chunks from.
//
// A caller owns a slot for the length of its job. Life of a slot:
//   1. The caller sets its bit in `owned_`, so the slot is its alone. `unclaimed` is 0.
//   2. It writes the plain fields, `unfinished` and `done`, then stores the number of chunks to `unclaimed` (release).
//   3. Anybody claims a chunk by decrementing `unclaimed` unless it is 0 (compare and swap, acquire), and only then reads
//      the plain fields, runs the chunk, and decrements `unfinished` (acquire-release).
//   4. Who takes `unfinished` to 0 says so in `done`; unless it is the caller itself, who waits for that.
//   5. The caller clears its bit in `owned_` (release).
//
// Why nobody reads the fields of one job with the chunk of another: a successful claim means that `unclaimed` was above 0,
// so a job is installed, and this job cannot end before the claimer has decremented `unfinished`; until then its fields stay.
// Which job the claimer had in mind when it looked at the slot does not matter: every claim is good for the job it lands in.
// Why the accesses to plain fields do not race: the claim reads the store of step 2 or a decrement that follows it in its
// release sequence; and the next owner's writes come after step 5, which comes after `unfinished` was 0, which comes after
// every claimer's reads. All chunks happen before the caller's return for the same reason.
//
// Sleeping pool threads: `sleepers_` is raised before the last look for work, and a caller looks at it after its chunks are
// visible, so a caller that wants to wake someone never overlooks a thread that has overlooked its job. Nothing depends
// on a thread waking up, though: the caller claims chunks until none is left.
#include "crossdevice/device/host_thread_pool.h"

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/service_thread.h"
#include "crossdevice/device/shutdown.h"

#include "device/detail/spin_wait.h"
#include "device/host/futex.h"

namespace crossdevice {
namespace {

/// Jobs at once that get help; a caller that finds no slot works alone.
constexpr std::size_t kNumSlots = 64;
/// A wake-up costs the caller 5 to 10 us and the sleeper 5 to 40 us until it runs: a rest shorter than this is not worth it.
constexpr std::chrono::microseconds kWorthWaking{60};
/// Threads that one thread wakes; those wake others in turn.
constexpr int kWakesPerThread = 2;

enum Done : std::uint32_t { RUNNING, FINISHED, RUNNING_AND_CALLER_SLEEPS };

struct alignas(64) Slot {
  std::atomic<std::size_t> unclaimed{0};
  std::atomic<std::size_t> unfinished{0};
  std::atomic<std::uint32_t> done{RUNNING};
  const detail::ChunkBody* body = nullptr;
  std::size_t num_chunks = 0;
};

/// Claims a chunk; false when none is left.
bool claim(Slot& slot, std::size_t& chunk) {
  std::size_t unclaimed = slot.unclaimed.load(std::memory_order_relaxed);
  while (unclaimed != 0) {
    if (slot.unclaimed.compare_exchange_weak(unclaimed, unclaimed - 1, std::memory_order_acquire,
                                             std::memory_order_relaxed)) {
      chunk = slot.num_chunks - unclaimed;
      return true;
    }
  }
  return false;
}

/// Reports finished chunks of somebody else's job.
void finish(Slot& slot) {
  if (slot.unfinished.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  // After this exchange the slot may serve another job; a wake-up that comes late is one too many, nothing worse.
  if (slot.done.exchange(FINISHED, std::memory_order_release) == RUNNING_AND_CALLER_SLEEPS) {
    host::futex_wake(slot.done, 1);
  }
}

/// Returns when the chunks that others have claimed are finished.
void wait_for_others(Slot& slot) {
  const auto is_done = [&] { return slot.done.load(std::memory_order_acquire) == FINISHED; };
  if (detail::spin_until(is_done)) return;
  std::uint32_t expected = RUNNING;
  slot.done.compare_exchange_strong(expected, RUNNING_AND_CALLER_SLEEPS, std::memory_order_relaxed);
  while (!is_done()) host::futex_wait(slot.done, RUNNING_AND_CALLER_SLEEPS);
}

/// The pool that this thread belongs to; only compared.
thread_local const void* pool_of_this_thread = nullptr;

}  // namespace

// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): what different threads write lies on lines of its own
class detail::HostThreadPoolState {
 public:
  explicit HostThreadPoolState(std::size_t num_threads) : num_threads_(num_threads) {}

  [[nodiscard]] std::size_t num_threads() const { return num_threads_; }

  void run(std::size_t num_chunks, const ChunkBody& body) {
    if (!started_.load(std::memory_order_acquire)) start();
    const std::size_t index = take_slot();
    if (index == kNumSlots) {
      for (std::size_t chunk = 0; chunk < num_chunks; ++chunk) body(chunk);
      return;
    }
    Slot& slot = slots_[index];
    slot.body = &body;
    slot.num_chunks = num_chunks;
    slot.unfinished.store(num_chunks, std::memory_order_relaxed);
    slot.done.store(RUNNING, std::memory_order_relaxed);
    slot.unclaimed.store(num_chunks, std::memory_order_release);
    const std::uint64_t bit = std::uint64_t{1} << index;
    open_.fetch_or(bit, std::memory_order_seq_cst);
    const std::size_t own = work_on_own_job(slot);
    open_.fetch_and(~bit, std::memory_order_relaxed);
    if (own == 0 || slot.unfinished.fetch_sub(own, std::memory_order_acq_rel) != own)
      wait_for_others(slot);
    owned_.fetch_and(~bit, std::memory_order_release);
  }

  /// Runs a chunk of an open job; looks at slot number `first` first.
  bool help(std::size_t first) {
    const std::uint64_t open =
        std::rotr(open_.load(std::memory_order_acquire), static_cast<int>(first));
    for (std::uint64_t rest = open; rest != 0; rest &= rest - 1) {
      Slot& slot = slots_[(first + static_cast<std::size_t>(std::countr_zero(rest))) % kNumSlots];
      std::size_t chunk = 0;
      if (!claim(slot, chunk)) continue;
      (*slot.body)(chunk);
      finish(slot);
      return true;
    }
    return false;
  }

  void stop() {
    if (pool_of_this_thread == this) {  // asked before the lock, which the joining thread may hold
      throw FailedPreconditionError(
          "HostThreadPool::stop() was called by one of the pool's threads, which cannot join "
          "itself");
    }
    const std::lock_guard lock(mutex_);
    stopping_.store(true, std::memory_order_seq_cst);
    started_.store(true, std::memory_order_release);  // never start them any more
    wake(static_cast<int>(threads_.size()));
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void start() {
    const std::lock_guard lock(mutex_);
    if (started_.load(std::memory_order_relaxed)) return;
    threads_.reserve(num_threads_ - 1);
    try {
      for (std::size_t i = 1; i < num_threads_; ++i) {
        threads_.push_back(
            start_service_thread("xdev-pool-" + std::to_string(i), [this, i] { work(i); }));
      }
    } catch (const ResourceExhaustedError&) {
      // As many as the system grants: no job depends on them.
    }
    started_.store(true, std::memory_order_release);
  }

  std::size_t take_slot() {
    std::uint64_t owned = owned_.load(std::memory_order_relaxed);
    while (~owned != 0) {
      const std::uint64_t bit = ~owned & (owned + 1);  // the lowest that is free
      if (owned_.compare_exchange_weak(owned, owned | bit, std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
        return static_cast<std::size_t>(std::countr_zero(bit));
      }
    }
    return kNumSlots;
  }

  /// Runs chunks until none is left to claim and returns how many they were. Wakes sleepers when it turns out to be worth it.
  std::size_t work_on_own_job(Slot& slot) {
    bool may_wake = sleepers_.load(std::memory_order_seq_cst) != 0;
    const auto begin = may_wake ? Clock::now() : Clock::time_point{};
    std::size_t own = 0;
    for (std::size_t chunk = 0; claim(slot, chunk); ++own) {
      (*slot.body)(chunk);
      if (!may_wake) continue;
      const auto rest = static_cast<double>(slot.unclaimed.load(std::memory_order_relaxed));
      const std::chrono::duration<double> elapsed = Clock::now() - begin;
      if (elapsed * rest / static_cast<double>(own + 1) < kWorthWaking) continue;
      wake_some();
      may_wake = false;
    }
    return own;
  }

  void work(std::size_t index) {
    pool_of_this_thread = this;
    const auto must_look = [this] {
      return stopping_.load(std::memory_order_relaxed) || has_work();
    };
    bool woke_up = false;
    while (!stopping_.load(std::memory_order_relaxed)) {
      if (woke_up && has_work()) wake_some();
      woke_up = false;
      while (help(index) && !stopping_.load(std::memory_order_relaxed)) {
      }
      if (spin_until(must_look)) continue;
      const std::uint32_t seen = wake_ups_.load(std::memory_order_acquire);
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      if (!must_look()) host::futex_wait(wake_ups_, seen);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
      woke_up = true;
    }
  }

  [[nodiscard]] bool has_work() const {
    for (std::uint64_t rest = open_.load(std::memory_order_seq_cst); rest != 0; rest &= rest - 1) {
      const Slot& slot = slots_[static_cast<std::size_t>(std::countr_zero(rest))];
      if (slot.unclaimed.load(std::memory_order_relaxed) != 0) return true;
    }
    return false;
  }

  void wake_some() {
    if (sleepers_.load(std::memory_order_seq_cst) != 0) wake(kWakesPerThread);
  }

  void wake(int num_threads) {
    wake_ups_.fetch_add(1, std::memory_order_seq_cst);
    host::futex_wake(wake_ups_, num_threads);
  }

  using Clock = std::chrono::steady_clock;

  const std::size_t num_threads_;
  std::array<Slot, kNumSlots> slots_;
  alignas(64) std::atomic<std::uint64_t> owned_{0};  // bit per slot: has a caller
  alignas(64) std::atomic<std::uint64_t> open_{
      0};  // bit per slot: may have unclaimed chunks; what idle threads poll
  alignas(64) std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<std::uint32_t> wake_ups_{0};  // the word that sleepers wait on
  std::atomic<bool> stopping_{false};
  std::atomic<bool> started_{false};
  std::mutex mutex_;  // guards threads_, and the change of started_
  std::vector<std::thread> threads_;
};

HostThreadPool& HostThreadPool::instance() {
  static HostThreadPool& pool = []() -> HostThreadPool& {
    static HostThreadPool& made =
        *new HostThreadPool(static_cast<std::size_t>(environment().num_threads));
    detail::stop_at_shutdown([] { made.stop(); });
    return made;
  }();
  return pool;
}

HostThreadPool::HostThreadPool(std::size_t num_threads)
    : state_(std::make_unique<detail::HostThreadPoolState>(num_threads)) {
  if (num_threads == 0) throw ValueError("HostThreadPool: expected at least 1 thread, got 0");
}

HostThreadPool::~HostThreadPool() {
  if (detail::is_forked_child()) {
    (void)state_
        .release();  // its threads are the parent's: there is nothing to join, and no way to let go of them
  } else {
    state_->stop();
  }
}

std::size_t HostThreadPool::num_threads() const { return state_->num_threads(); }

bool HostThreadPool::help() {
  detail::require_not_forked();
  return state_->help(0);
}

void HostThreadPool::stop() {
  if (!detail::is_forked_child()) state_->stop();
}

void HostThreadPool::run_chunks(std::size_t num_chunks, detail::ChunkBody body) {
  detail::require_not_forked();
  if (num_chunks != 0) state_->run(num_chunks, body);
}

}  // namespace crossdevice
