// SPDX-License-Identifier: Apache-2.0
/// Bars of a timeline: what each thread, device and rank does when. CROSSDEVICE_TRACE names the file (core/environment.h), which chrome://tracing and
/// ui.perfetto.dev open.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/core/export.h"

namespace crossdevice {

namespace detail {

/// Who wants spans, as bits.
inline constexpr unsigned kTraceToFile = 1;
inline constexpr unsigned kTraceToHook = 2;
inline constexpr unsigned kTraceUnknown = 4;  // CROSSDEVICE_TRACE has not been looked at
CROSSDEVICE_EXPORT extern std::atomic<unsigned> trace_state;

/// Names of the tracks that a bar stands on, besides its thread's; never destroyed.
struct TraceTracks {
  std::vector<std::string> names;
};

struct SpanHook;
}  // namespace detail

/// What a bar says besides its name; texts are string literals.
struct TraceArguments {
  std::uint64_t sequence = 0;  ///< of the operation; 0: that of the span around it
  std::uint64_t num_bytes = 0;
  std::string_view dtype = {};
  const char* algorithm = nullptr;              ///< null: that of the span around it
  const detail::TraceTracks* tracks = nullptr;  ///< null: those of the span around it
};

namespace detail {

struct TraceEvent {
  const char* name;
  const char* category;
  std::int64_t begin_ns;
  std::int64_t end_ns;
  TraceArguments arguments;
};

/// A bar that has ended already, and lies in this thread's innermost open span: what it does not say of itself that one says for it. Bars that are recorded one
/// after the other must not overlap. For the file alone; nothing where none is written.
CROSSDEVICE_EXPORT void record_bar(const TraceEvent& bar) noexcept;

}  // namespace detail

/// A bar from construction to destruction, on the tracks of the thread's innermost open span that has some, or else on a track of the thread. A program
/// may add bars of its own: crossdevice::TraceSpan span("backward").
///
/// Memory   texts are kept as pointers: string literals. Each thread has room for 16384 bars that are not written yet; what does not fit is dropped,
///          counted (crossdevice_trace_dropped_total) and said at the end of the file. A thread's first span allocates.
/// Order    spans of one thread nest: the last one that was opened is closed first.
/// Threads  any; a span is closed by the thread that has opened it. A thread of the library writes the file every 20 ms, so that a process that is killed leaves
///          all but its last moments. A child of fork() writes nothing.
/// Cost     while nobody wants spans: one relaxed load and a branch. Else some 0.1 us; it never waits.
class CROSSDEVICE_EXPORT TraceSpan {
 public:
  explicit TraceSpan(const char* name, const char* category = "program") noexcept
      : TraceSpan(name, category, [] { return TraceArguments(); }) {}
  /// `make()` gives the TraceArguments; called only if somebody wants the span.
  template <class Make>
  TraceSpan(const char* name, const char* category, const Make& make) noexcept {
    if (detail::trace_state.load(std::memory_order_relaxed) != 0) [[unlikely]] {
      if (is_wanted()) begin(name, category, make());
    }
  }
  ~TraceSpan() {
    if (is_open_) [[unlikely]]
      end();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

  [[nodiscard]] bool is_open() const noexcept { return is_open_; }
  /// For what is known late. Said of the library's spans around it too, as far as they say nothing themselves.
  void set_how(const char* algorithm, std::string_view dtype) noexcept {
    if (is_open_) [[unlikely]]
      add_how(algorithm, dtype);
  }

 private:
  friend void detail::record_bar(const detail::TraceEvent& bar) noexcept;

  [[nodiscard]] static bool is_wanted() noexcept;
  void begin(const char* name, const char* category, const TraceArguments& arguments) noexcept;
  void end() noexcept;
  void add_how(const char* algorithm, std::string_view dtype) noexcept;

  bool is_open_ = false;
  // The rest only while it is open.
  const detail::SpanHook* hook_;  // that has been told; null: none
  TraceSpan* outer_;
  union {  // not even initialised while it is not
    detail::TraceEvent event;
  };
};

/// What has been recorded so far is in the file when this returns. Nothing where no file is written.
///
/// Threads  any.
CROSSDEVICE_EXPORT void flush_trace();

namespace detail {

/// Another that wants spans: a profiler's ranges. Both are called on the thread of the span, `pop` in the reverse order.
struct SpanHook {
  void (*push)(const TraceEvent& event) noexcept;
  void (*pop)() noexcept;
};
/// Null: nobody. `hook` is never destroyed.
CROSSDEVICE_EXPORT void set_span_hook(const SpanHook* hook) noexcept;

/// Who this process is among the workers: what its tracks are called.
CROSSDEVICE_EXPORT void set_trace_rank(int rank, std::string_view host);

/// Bars that have become known since the last call, by whoever writes the file, just before: they are no thread's.
using LateBars = std::vector<TraceEvent> (*)() noexcept;
/// One for the process.
CROSSDEVICE_EXPORT void set_late_bars(LateBars late) noexcept;

/// Ends the thread that writes; what comes later is written when the process ends. For shutdown().
CROSSDEVICE_EXPORT void stop_trace_thread();

}  // namespace detail
}  // namespace crossdevice
