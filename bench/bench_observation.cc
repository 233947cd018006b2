// SPDX-License-Identifier: Apache-2.0
// What it costs to be observable: spans that nobody wants, spans that somebody wants, counters on and off, messages below the level; and what part of the
// smallest call that is.
#include <vector>

#include <benchmark/benchmark.h>

#include "crossdevice/collective/reduction_span.h"
#include "crossdevice/core/counter.h"
#include "crossdevice/core/counters.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/operation_kind.h"
#include "crossdevice/core/trace.h"
#include "crossdevice/crossdevice.h"

namespace cd = crossdevice;

namespace {

constinit const cd::Counter kCounter("bench_total", "", "For the bench.");

void Nothing(benchmark::State& state) {
  for (auto _ : state) benchmark::ClobberMemory();
}
BENCHMARK(Nothing);

/// Off, unless CROSSDEVICE_TRACE is set: then written to the file, or dropped.
void Span(benchmark::State& state) {
  for (auto _ : state) {
    const cd::TraceSpan span("span", "bench", [] { return cd::TraceArguments{.num_bytes = 8}; });
    benchmark::ClobberMemory();
  }
}
BENCHMARK(Span)->Threads(1)->Threads(2);

void SpanWithAHook(benchmark::State& state) {
  static constexpr cd::detail::SpanHook hook{.push = [](const cd::detail::TraceEvent&) noexcept {},
                                             .pop = []() noexcept {}};
  cd::detail::set_span_hook(&hook);
  for (auto _ : state) {
    const cd::TraceSpan span("span", "bench");
    benchmark::ClobberMemory();
  }
  cd::detail::set_span_hook(nullptr);
}
BENCHMARK(SpanWithAHook);

void CounterAdd(benchmark::State& state) {
  for (auto _ : state) kCounter.add();
}
BENCHMARK(CounterAdd)->Threads(1)->Threads(2);

void MessageBelowTheLevel(benchmark::State& state) {
  for (auto _ : state) cd::log(cd::LogSeverity::INFO, "nobody reads this");
}
BENCHMARK(MessageBelowTheLevel);

/// Whether anything is counted, while it lives.
class Counted {
 public:
  explicit Counted(bool on)
      : before_(cd::detail::counter_state.exchange(on ? cd::detail::CounterState::ON
                                                      : cd::detail::CounterState::OFF)) {}
  ~Counted() { cd::detail::counter_state = before_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  cd::detail::CounterState before_;
};

void CounterAddSwitchedOff(benchmark::State& state) {
  const Counted counted(false);
  for (auto _ : state) kCounter.add();
}
BENCHMARK(CounterAddSwitchedOff);

/// 8 bytes on each of two devices, in place.
class SmallestCall {
 public:
  SmallestCall() : storage_(2, std::vector<float>(2, 0.0F)) {
    value_ =
        cd::PerReplica(std::vector<cd::Tensor>{cd::Tensor::view(std::span(storage_[0]), "CPU:0"),
                                               cd::Tensor::view(std::span(storage_[1]), "CPU:1")});
  }
  void run() { ops_.reduce_into(cd::ReduceOp::SUM, value_, value_); }
  /// Spans that one call opens.
  [[nodiscard]] int num_spans() {
    static int count;
    static constexpr cd::detail::SpanHook hook{
        .push = [](const cd::detail::TraceEvent&) noexcept { ++count; }, .pop = []() noexcept {}};
    run();
    count = 0;
    cd::detail::set_span_hook(&hook);
    run();
    cd::detail::set_span_hook(nullptr);
    return count;
  }

 private:
  std::vector<std::vector<float>> storage_;
  cd::PerReplica value_;
  cd::ReductionToOneDevice ops_;
};

/// The argument: counters on or off.
void SmallestCallAsItIs(benchmark::State& state) {
  const Counted counted(state.range(0) != 0);
  SmallestCall call;
  for (auto _ : state) call.run();
}
BENCHMARK(SmallestCallAsItIs)->ArgName("counters")->Arg(1)->Arg(0);

constinit const cd::detail::OperationKind kOperation("bench", "kind=\"bench\"");
constinit const cd::detail::ReductionAlgorithm kAlgorithm("bench", "algorithm=\"bench\"");

/// As many spans that nobody wants as that call opens, and what it counts: an operation, whose time it takes as often as there, and a reduction, each with its
/// bytes. With nothing between: what it costs the call is the difference of the call's own rows.
void WhatItObserves(benchmark::State& state) {
  const Counted counted(state.range(0) != 0);
  const int num_spans = SmallestCall().num_spans();
  for (auto _ : state) {
    for (int i = 0; i < num_spans; ++i) {
      const cd::TraceSpan span("span", "bench", [] { return cd::TraceArguments{.num_bytes = 8}; });
      benchmark::ClobberMemory();
    }
    cd::detail::OperationTime time;
    time.start(kOperation, 8);
    benchmark::ClobberMemory();
    cd::detail::ReductionSpan::count(kAlgorithm, 8);
    benchmark::ClobberMemory();
    time.count(kOperation, 8);
    benchmark::ClobberMemory();
  }
  state.counters["spans"] = num_spans;
}
BENCHMARK(WhatItObserves)->ArgName("counters")->Arg(1)->Arg(0);

void ReadAllAsText(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(cd::counters_text());
}
BENCHMARK(ReadAllAsText);

}  // namespace
