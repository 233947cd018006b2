// SPDX-License-Identifier: Apache-2.0
// Reads counters and sources, and writes them as Prometheus wants them.
#include "crossdevice/core/counters.h"

#include <algorithm>
#include <mutex>
#include <tuple>

#include <fmt/format.h>

#include "core/detail/counter_registry.h"

namespace crossdevice {
namespace {

using Source = void (*)(std::vector<CounterSample>& samples);

// Never destroyed: who reads may be a thread that outlives main.
struct Sources {
  std::mutex mutex;  // guards `list`
  std::vector<Source> list;
};

Sources& sources() {
  static Sources& instance = *new Sources;
  return instance;
}

constexpr double kNanosecond = 1e-9;

double value_of(std::size_t index, Counter::Unit unit) {
  const auto sum = static_cast<double>(detail::sum_of_cells(index));
  switch (unit) {
    case Counter::Unit::ONE:
      return sum;
    case Counter::Unit::NANOSECONDS:
      return sum * kNanosecond;
  }
  return sum;
}

/// A line of HELP ends where the text does.
std::string on_one_line(std::string_view help) {
  std::string line;
  line.reserve(help.size());
  for (const char each : help) {
    if (each == '\\') line += "\\\\";
    if (each == '\n') line += "\\n";
    if (each != '\\' && each != '\n') line += each;
  }
  return line;
}

}  // namespace

std::string_view to_string(CounterKind kind) {
  switch (kind) {
    case CounterKind::COUNTER:
      return "counter";
    case CounterKind::GAUGE:
      return "gauge";
  }
  return "untyped";
}

void add_counter_source(void (*source)(std::vector<CounterSample>& samples)) {
  Sources& all = sources();
  const std::lock_guard lock(all.mutex);
  if (std::find(all.list.begin(), all.list.end(), source) == all.list.end()) {
    all.list.push_back(source);
  }
}

std::vector<CounterSample> counters() {
  std::vector<CounterSample> samples;
  const std::span<const detail::CounterEntry> entries = detail::counter_entries();
  samples.reserve(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    samples.push_back({.name = entries[i].name,
                       .labels = entries[i].labels,
                       .help = entries[i].help,
                       .kind = CounterKind::COUNTER,
                       .value = value_of(i, entries[i].unit)});
  }
  std::vector<Source> list;
  {
    Sources& all = sources();
    const std::lock_guard lock(all.mutex);
    list = all.list;
  }
  for (const Source source : list) source(samples);
  std::stable_sort(samples.begin(), samples.end(),
                   [](const CounterSample& a, const CounterSample& b) {
                     return std::tie(a.name, a.labels) < std::tie(b.name, b.labels);
                   });
  return samples;
}

double counter_value(std::string_view name, std::string_view labels) {
  double sum = 0;
  for (const CounterSample& sample : counters()) {
    if (sample.name == name && (labels.empty() || sample.labels == labels)) sum += sample.value;
  }
  return sum;
}

std::string counters_text() {
  std::string text;
  std::string_view family;
  const std::vector<CounterSample> samples = counters();
  for (const CounterSample& sample : samples) {
    if (sample.name != family) {
      family = sample.name;
      text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", family, on_one_line(sample.help), family,
                          to_string(sample.kind));
    }
    text += sample.labels.empty()
                ? fmt::format("{} {}\n", sample.name, sample.value)
                : fmt::format("{}{{{}}} {}\n", sample.name, sample.labels, sample.value);
  }
  return text;
}

}  // namespace crossdevice
