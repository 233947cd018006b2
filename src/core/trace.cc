// SPDX-License-Identifier: Apache-2.0
/// How spans get into the file. A span's thread pushes it into its own ring; one thread of the library, or, when that has ended, whoever flushes, empties all
/// rings, under `drain_mutex`, so that each ring has one consumer at a time. Nobody who records ever takes that lock.
#include "crossdevice/core/trace.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include "crossdevice/core/counters.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/service_thread.h"
#include "crossdevice/core/trace_clock.h"

#include "core/detail/thread_blocks.h"
#include "core/detail/trace_file.h"
#include "core/detail/trace_ring.h"

namespace crossdevice {
namespace detail {

constinit std::atomic<unsigned> trace_state{kTraceUnknown};

namespace {

constexpr std::chrono::milliseconds kWriteInterval{20};
constexpr std::uint32_t kNoThread = 0;  // rings have numbers from 1 on

constinit ThreadBlocks<TraceRing> all_rings;
constinit std::atomic<std::uint32_t> num_rings{0};
constinit std::atomic<const SpanHook*> span_hook{nullptr};
constinit std::atomic<LateBars> late_bars{nullptr};

[[gnu::tls_model("initial-exec")]] constinit thread_local TraceSpan* innermost = nullptr;
[[gnu::tls_model("initial-exec")]] constinit thread_local OwnBlock<TraceRing> own_ring;

std::unique_ptr<TraceRing> make_ring() {
  return std::make_unique<TraceRing>(num_rings.fetch_add(1, std::memory_order_relaxed) + 1);
}

/// Null: no memory, or the thread ends: spans of destructors of its own objects are not recorded.
TraceRing* ring_of_this_thread() noexcept {
  if (own_ring.block != nullptr || own_ring.has_ended) return own_ring.block;
  try {
    thread_local const BlockLease lease(own_ring);
    own_ring.block = all_rings.take([] { return make_ring().release(); });
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  return own_ring.block;
}

std::uint64_t num_dropped() noexcept {
  std::uint64_t sum = 0;
  for (const TraceRing* each = newest_trace_ring(); each != nullptr; each = each->next) {
    sum += each->num_dropped();
  }
  return sum;
}

void add_samples(std::vector<CounterSample>& samples) {
  samples.push_back({.name = "crossdevice_trace_dropped_total",
                     .labels = {},
                     .help = "Bars that the trace has no room for.",
                     .kind = CounterKind::COUNTER,
                     .value = static_cast<double>(num_dropped())});
}

/// Writes the rings to the file until the process ends.
class TraceWriter {
 public:
  TraceWriter(const std::string& path, std::string_view rank) : file_(path, rank) {}

  [[nodiscard]] const std::string& path() const { return file_.path(); }

  void start() {
    try {
      thread_ = start_service_thread("xdev-trace", [this] { run(); });
    } catch (const ResourceExhaustedError&) {
      // Whoever flushes writes then, and the end of the process.
    }
  }
  /// Threads  any.
  void stop_thread() {
    const std::lock_guard turn(stop_mutex_);
    {
      const std::lock_guard lock(wake_mutex_);
      is_stopping_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  void write() {
    const LateBars late = late_bars.load(std::memory_order_acquire);
    const std::vector<TraceEvent> bars = late == nullptr ? std::vector<TraceEvent>() : late();
    const std::lock_guard lock(drain_mutex_);
    if (is_closed_) return;
    drain();
    for (const TraceEvent& each : bars) file_.write(each, kNoThread);
    file_.flush();
    complain();
  }
  void close() {
    const std::lock_guard lock(drain_mutex_);
    if (is_closed_) return;
    is_closed_ = true;
    drain();
    const std::uint64_t dropped = num_dropped();
    file_.close(dropped);
    complain();
    if (dropped == 0) return;
    log(LogSeverity::WARNING,
        fmt::format("{} bars are missing in {}: more came than could be written", dropped,
                    file_.path()));
  }
  /// Does not wait for the file: whoever says it has heartbeats to send.
  void note_clock(const ClockOffset& offset) {
    const std::lock_guard lock(clock_mutex_);
    clock_offsets_.push_back(offset);
  }
  void name_process(int rank, std::string_view host) {
    const std::lock_guard lock(drain_mutex_);
    if (!is_closed_) file_.name_process(rank, host);
  }

 private:
  void run() {
    std::unique_lock lock(wake_mutex_);
    while (!wake_.wait_for(lock, kWriteInterval, [this] { return is_stopping_; })) {
      lock.unlock();
      write();
      lock.lock();
    }
  }
  void drain() {
    std::vector<ClockOffset> offsets;
    {
      const std::lock_guard lock(clock_mutex_);
      offsets.swap(clock_offsets_);
    }
    for (const ClockOffset& each : offsets) file_.note_clock(each);
    for (TraceRing* each = newest_trace_ring(); each != nullptr; each = each->next) {
      each->drain([this, each](const TraceEvent& event) { file_.write(event, each->number()); });
    }
  }
  void complain() {
    if (file_.error() == 0 || has_complained_) return;
    has_complained_ = true;
    log(LogSeverity::WARNING, fmt::format("the trace could not be written to {}: {}", file_.path(),
                                          std::generic_category().message(file_.error())));
  }

  std::mutex drain_mutex_;  // guards the file, and the consumers' side of the rings
  TraceFile file_;
  bool is_closed_ = false;
  bool has_complained_ = false;
  std::mutex clock_mutex_;                  // guards the following
  std::vector<ClockOffset> clock_offsets_;  // not in the file yet
  std::mutex stop_mutex_;                   // guards thread_
  std::thread thread_;
  std::mutex wake_mutex_;  // guards is_stopping_
  std::condition_variable wake_;
  bool is_stopping_ = false;
};

constinit std::mutex start_mutex;                     // one thread starts
constinit std::atomic<TraceWriter*> writer{nullptr};  // never destroyed
pid_t owner = 0;                                      // whose the writer is; written before it

TraceWriter* own_writer() noexcept {
  TraceWriter* const found = writer.load(std::memory_order_acquire);
  return found != nullptr && owner == ::getpid() ? found : nullptr;
}

void close_at_exit() {
  TraceWriter* const found = own_writer();
  if (found == nullptr) return;
  trace_state.fetch_and(~kTraceToFile, std::memory_order_relaxed);
  found->stop_thread();
  found->write();  // with what becomes known late, as long as that can be asked for
  found->close();
}

void stop_in_child() { trace_state.store(0, std::memory_order_relaxed); }

/// What there is to warn of; empty: nothing.
std::string start_writer(const std::string& wanted) {
  const EnvironmentSource look_up = process_environment();
  const std::string rank = look_up(kRankVariable).value_or("");
  const std::string path = expand_trace_path(wanted, rank);
  std::string warning;
  try {
    auto made = std::make_unique<TraceWriter>(path, rank);
    owner = ::getpid();
    // NOLINTNEXTLINE(cert-err33-c): without the handlers the file is only less complete
    (void)pthread_atfork(nullptr, nullptr, &stop_in_child);
    (void)std::atexit(&close_at_exit);
    add_counter_source(&add_samples);
    made->start();
    if (made->path() != path) {
      warning = fmt::format(
          "another process writes its trace to {}, so this one's is {}; %p or %r in "
          "CROSSDEVICE_TRACE gives each a name of its own",
          path, made->path());
    }
    writer.store(made.release(), std::memory_order_release);
    trace_state.fetch_or(kTraceToFile, std::memory_order_relaxed);
  } catch (const std::exception& error) {
    warning = fmt::format("no trace is written (CROSSDEVICE_TRACE): {}", error.what());
  }
  return warning;
}

/// What the environment says has been looked at.
struct KnownAtTheEnd {
  KnownAtTheEnd() = default;
  ~KnownAtTheEnd() { trace_state.fetch_and(~kTraceUnknown, std::memory_order_relaxed); }
  KnownAtTheEnd(const KnownAtTheEnd&) = delete;
  KnownAtTheEnd& operator=(const KnownAtTheEnd&) = delete;
};

/// What the environment says, once.
[[gnu::noinline]] void look_at_environment() noexcept {
  std::string warning;
  try {
    const std::lock_guard lock(start_mutex);
    if ((trace_state.load(std::memory_order_relaxed) & kTraceUnknown) == 0) return;
    const KnownAtTheEnd known;  // with the lock: whoever waits for it must not look once more
    std::string path;
    try {
      path = environment().trace;
    } catch (...) {
      // Whoever asks for the environment itself gets the error.
    }
    if (!path.empty()) warning = start_writer(path);
    // NOLINTNEXTLINE(bugprone-empty-catch): a trace that cannot be must not end the operation
  } catch (...) {
  }
  // Without the lock: the program's sink may have bars of its own.
  if (!warning.empty()) log(LogSeverity::WARNING, warning);
}

}  // namespace

TraceRing* newest_trace_ring() noexcept { return all_rings.newest(); }

void set_span_hook(const SpanHook* hook) noexcept {
  span_hook.store(hook, std::memory_order_release);
  if (hook != nullptr) {
    trace_state.fetch_or(kTraceToHook, std::memory_order_relaxed);
  } else {
    trace_state.fetch_and(~kTraceToHook, std::memory_order_relaxed);
  }
}

void set_late_bars(LateBars late) noexcept { late_bars.store(late, std::memory_order_release); }

void record_bar(const TraceEvent& bar) noexcept {
  if ((trace_state.load(std::memory_order_relaxed) & kTraceToFile) == 0) return;
  TraceRing* const ring = ring_of_this_thread();
  if (ring == nullptr) return;
  TraceEvent event = bar;
  if (innermost != nullptr) {
    const TraceArguments& around = innermost->event.arguments;
    TraceArguments& own = event.arguments;
    if (own.sequence == 0) own.sequence = around.sequence;
    if (own.tracks == nullptr) own.tracks = around.tracks;
    if (own.algorithm == nullptr) own.algorithm = around.algorithm;
  }
  ring->push(event);
}

void set_trace_rank(int rank, std::string_view host) {
  if ((trace_state.load(std::memory_order_relaxed) & kTraceUnknown) != 0) look_at_environment();
  if (TraceWriter* const found = own_writer()) found->name_process(rank, host);
}

bool is_trace_written() noexcept {
  if ((trace_state.load(std::memory_order_relaxed) & kTraceUnknown) != 0) look_at_environment();
  return (trace_state.load(std::memory_order_relaxed) & kTraceToFile) != 0;
}

void note_clock_offset(const ClockOffset& offset) {
  if (TraceWriter* const found = own_writer()) found->note_clock(offset);
}

void stop_trace_thread() {
  if (TraceWriter* const found = own_writer()) {
    found->stop_thread();
    found->write();
  }
}

}  // namespace detail

bool TraceSpan::is_wanted() noexcept {
  if ((detail::trace_state.load(std::memory_order_relaxed) & detail::kTraceUnknown) == 0) {
    return true;
  }
  detail::look_at_environment();
  return detail::trace_state.load(std::memory_order_relaxed) != 0;
}

void TraceSpan::begin(const char* name, const char* category,
                      const TraceArguments& arguments) noexcept {
  // Before the bar begins: a ring that another thread gives back later would have bars of both at once.
  if ((detail::trace_state.load(std::memory_order_relaxed) & detail::kTraceToFile) != 0) {
    (void)detail::ring_of_this_thread();
  }
  is_open_ = true;
  outer_ = detail::innermost;
  detail::innermost = this;
  event = {.name = name,
           .category = category,
           .begin_ns = detail::trace_clock_ns(),
           .end_ns = 0,
           .arguments = arguments};
  if (outer_ != nullptr) {
    const TraceArguments& around = outer_->event.arguments;
    if (arguments.sequence == 0) event.arguments.sequence = around.sequence;
    if (arguments.tracks == nullptr) event.arguments.tracks = around.tracks;
  }
  hook_ = detail::span_hook.load(std::memory_order_acquire);
  if (hook_ != nullptr) hook_->push(event);
}

void TraceSpan::end() noexcept {
  detail::innermost = outer_;
  if (hook_ != nullptr) hook_->pop();
  event.end_ns = detail::trace_clock_ns();
  // Not before: a span may be told its own while it is open.
  if (outer_ != nullptr && event.arguments.algorithm == nullptr) {
    event.arguments.algorithm = outer_->event.arguments.algorithm;
  }
  if ((detail::trace_state.load(std::memory_order_relaxed) & detail::kTraceToFile) == 0) return;
  if (detail::TraceRing* const ring = detail::ring_of_this_thread()) ring->push(event);
}

void TraceSpan::add_how(const char* algorithm, std::string_view dtype) noexcept {
  for (TraceSpan* each = this; each != nullptr; each = each->outer_) {
    if (std::strcmp(each->event.category, "program") == 0) continue;
    TraceArguments& known = each->event.arguments;
    if (known.algorithm == nullptr) known.algorithm = algorithm;
    if (known.dtype.empty()) known.dtype = dtype;
  }
}

void flush_trace() {
  if (detail::TraceWriter* const found = detail::own_writer()) found->write();
}

}  // namespace crossdevice
