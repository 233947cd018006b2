// SPDX-License-Identifier: Apache-2.0
/// Why no count is lost. A block of cells is written by the thread that has taken it, and by nobody else: take() succeeds for one thread (an exchange),
/// and who gives a block back releases it, which the next taker acquires, so that it goes on from the last value. Blocks stay in the list for ever,
/// so whoever reads sees what ended threads have counted.
#include "crossdevice/core/counter.h"

#include <cstring>
#include <mutex>
#include <new>

#include "crossdevice/core/log.h"

#include "core/detail/counter_registry.h"

namespace crossdevice {
namespace detail {
namespace {

struct CounterBlock {
  CounterCells cells{};
  std::atomic<bool> is_taken{false};
  CounterBlock* next = nullptr;
};

// Never destroyed, and there from the start: counters are made, and count, before and after main.
constinit std::atomic<CounterBlock*> all_blocks{nullptr};
constinit CounterBlock spare_block;  // where there is no memory for another; counts may be lost

constinit std::mutex registry_mutex;  // held while an entry is added
constinit std::array<CounterEntry, Counter::kMaxCounters> registry{};
constinit std::atomic<std::uint32_t> num_entries{0};  // entries before it do not change any more

bool take(CounterBlock& block) { return !block.is_taken.exchange(true, std::memory_order_acquire); }
void give(CounterBlock& block) { block.is_taken.store(false, std::memory_order_release); }

CounterBlock* block_of(CounterCells* cells) {
  static_assert(offsetof(CounterBlock, cells) == 0);
  return reinterpret_cast<CounterBlock*>(cells);
}

CounterBlock& take_block() noexcept {
  for (CounterBlock* each = all_blocks.load(std::memory_order_acquire); each != nullptr;
       each = each->next) {
    if (!each->is_taken.load(std::memory_order_relaxed) && take(*each)) return *each;
  }
  auto* const made = new (std::nothrow) CounterBlock;
  if (made == nullptr) return spare_block;
  made->is_taken.store(true, std::memory_order_relaxed);
  made->next = all_blocks.load(std::memory_order_relaxed);
  while (!all_blocks.compare_exchange_weak(made->next, made, std::memory_order_release,
                                           std::memory_order_relaxed)) {
  }
  return *made;
}

// A pointer and a word of every thread: small enough for the room that a program keeps for libraries that it opens late.
[[gnu::tls_model("initial-exec")]] constinit thread_local CounterCells* own_cells = nullptr;
[[gnu::tls_model("initial-exec")]] constinit thread_local bool has_given_back = false;

/// Gives the thread's block back when it ends.
struct BlockLease {
  CounterBlock* block = nullptr;
  BlockLease() = default;
  ~BlockLease() {
    own_cells = nullptr;
    has_given_back = true;
    if (block != nullptr) give(*block);
  }
  BlockLease(const BlockLease&) = delete;
  BlockLease& operator=(const BlockLease&) = delete;
};

/// Whether the cells are borrowed.
[[gnu::noinline]] bool find_cells(CounterCells*& cells) noexcept {
  CounterBlock& block = take_block();
  cells = &block.cells;
  if (has_given_back) return true;
  thread_local BlockLease lease;
  lease.block = &block;
  own_cells = cells;
  return false;
}

std::uint32_t add_entry(const CounterEntry& entry) noexcept {
  const std::lock_guard lock(registry_mutex);
  const std::uint32_t count = num_entries.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (std::strcmp(registry[i].name, entry.name) == 0 &&
        std::strcmp(registry[i].labels, entry.labels) == 0) {
      return i;
    }
  }
  if (count == registry.size()) return count;
  registry[count] = entry;
  num_entries.store(count + 1, std::memory_order_release);
  return count;
}

}  // namespace

std::span<const CounterEntry> counter_entries() noexcept {
  return std::span(registry).first(num_entries.load(std::memory_order_acquire));
}

std::uint64_t sum_of_cells(std::size_t index) noexcept {
  std::uint64_t sum = spare_block.cells[index].load(std::memory_order_relaxed);
  for (const CounterBlock* each = all_blocks.load(std::memory_order_acquire); each != nullptr;
       each = each->next) {
    sum += each->cells[index].load(std::memory_order_relaxed);
  }
  return sum;
}

ThreadCounters::ThreadCounters() noexcept : cells_(own_cells) {
  if (cells_ == nullptr) [[unlikely]]
    is_borrowed_ = find_cells(cells_);
}

void ThreadCounters::give_back() noexcept { give(*block_of(cells_)); }

}  // namespace detail

std::size_t Counter::find_index() const noexcept {
  const std::uint32_t index = detail::add_entry({name_, labels_, help_, unit_});
  if (index == kMaxCounters) {
    log_once("too many counters", LogSeverity::WARNING,
             "there are more counters than there is room for: some are not counted");
  }
  index_.store(index, std::memory_order_relaxed);
  return index;
}

void Counter::add(std::uint64_t amount) const noexcept {
  detail::ThreadCounters().add(*this, amount);
}

std::uint64_t Counter::value() const noexcept {
  return index() == kMaxCounters ? 0 : detail::sum_of_cells(index());
}

}  // namespace crossdevice
