// SPDX-License-Identifier: Apache-2.0
/// Why no count is lost: a block of cells is written by the thread that has taken it, and by nobody else; the next one that takes it goes on from the last
/// value (core/detail/thread_blocks.h).
#include "crossdevice/core/counter.h"

#include <cstring>
#include <mutex>
#include <new>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/log.h"

#include "core/detail/counter_registry.h"
#include "core/detail/thread_blocks.h"

namespace crossdevice {
namespace detail {

constinit std::atomic<CounterState> counter_state{CounterState::UNKNOWN};

namespace {

struct CounterBlock {
  CounterCells cells{};
  std::atomic<bool> is_taken{false};
  CounterBlock* next = nullptr;
};

// Never destroyed, and there from the start: counters are made, and count, before and after main.
constinit ThreadBlocks<CounterBlock> all_blocks;
constinit CounterBlock spare_block;  // where there is no memory for another; counts may be lost

constinit std::mutex registry_mutex;  // held while an entry is added
constinit std::array<CounterEntry, Counter::kMaxCounters> registry{};
constinit std::atomic<std::uint32_t> num_entries{0};  // entries before it do not change any more

CounterBlock* block_of(CounterCells* cells) {
  static_assert(offsetof(CounterBlock, cells) == 0);
  return reinterpret_cast<CounterBlock*>(cells);
}

[[gnu::tls_model("initial-exec")]] constinit thread_local OwnBlock<CounterBlock> own_block;

/// Whether the cells are borrowed.
[[gnu::noinline]] bool find_cells(CounterCells*& cells) noexcept {
  CounterBlock* block = all_blocks.take([] { return new (std::nothrow) CounterBlock; });
  if (block == nullptr) block = &spare_block;
  cells = &block->cells;
  if (own_block.has_ended) return true;
  thread_local const BlockLease lease(own_block);
  own_block.block = block;
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

bool find_whether_counted() noexcept {
  bool counted = true;
  try {
    counted = environment().counters;
    // NOLINTNEXTLINE(bugprone-empty-catch): whoever asks for the environment itself gets the error
  } catch (...) {
  }
  counter_state.store(counted ? CounterState::ON : CounterState::OFF, std::memory_order_relaxed);
  return counted;
}

std::span<const CounterEntry> counter_entries() noexcept {
  return std::span(registry).first(num_entries.load(std::memory_order_acquire));
}

std::uint64_t sum_of_cells(std::size_t index) noexcept {
  std::uint64_t sum = spare_block.cells[index].load(std::memory_order_relaxed);
  for (const CounterBlock* each = all_blocks.newest(); each != nullptr; each = each->next) {
    sum += each->cells[index].load(std::memory_order_relaxed);
  }
  return sum;
}

ThreadCounters::ThreadCounters() noexcept
    : cells_(own_block.block == nullptr ? nullptr : &own_block.block->cells) {
  if (cells_ == nullptr) [[unlikely]]
    is_borrowed_ = find_cells(cells_);
}

void ThreadCounters::give_back() noexcept {
  ThreadBlocks<CounterBlock>::give_back(*block_of(cells_));
}

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
  if (!detail::is_counted()) return;
  detail::ThreadCounters().add(*this, amount);
}

std::uint64_t Counter::value() const noexcept {
  return index() == kMaxCounters ? 0 : detail::sum_of_cells(index());
}

}  // namespace crossdevice
