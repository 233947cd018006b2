// SPDX-License-Identifier: Apache-2.0
// What it costs to be observable: spans that nobody wants, spans that somebody wants, counters, messages below the level.
#include <benchmark/benchmark.h>

#include "crossdevice/core/counter.h"
#include "crossdevice/core/counters.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/trace.h"

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

void ReadAllAsText(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(cd::counters_text());
}
BENCHMARK(ReadAllAsText);

}  // namespace
