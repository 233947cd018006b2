// SPDX-License-Identifier: Apache-2.0
#include "chaos/steps.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

namespace crossdevice::chaos {

int Step::generation() const {
  int number = 0;
  return std::sscanf(name.c_str(), "%*s %d", &number) == 1 ? number : 0;  // NOLINT
}

int Step::index() const {
  int number = 0;
  return std::sscanf(name.c_str(), "%*s %*d %d", &number) == 1 ? number : -1;  // NOLINT
}

std::vector<Step> steps_of(const WorkerReport& report) {
  std::vector<Step> steps;
  for (const Event& event : report.events) {
    const double time = static_cast<double>(event.time_us) / 1e6;
    if (event.kind == EventKind::BEGIN) steps.push_back({.name = event.step, .begun = time});
    if (event.kind != EventKind::DONE && event.kind != EventKind::FAIL) continue;
    if (steps.empty() || steps.back().name != event.step) continue;
    steps.back().seconds = time - steps.back().begun;
    if (event.kind == EventKind::FAIL) steps.back().failure = &event;
  }
  return steps;
}

const std::vector<int>* members_of(const WorkerReport& report, int generation) {
  int now = 1;
  for (const Event& event : report.events) {
    if (event.kind == EventKind::MEMBER && ++now == generation) return &event.ranks;
  }
  return nullptr;
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

bool tells_of(const Event& failure, int rank) {
  return failure.text.find(fmt::format("rank {} ", rank)) != std::string::npos;
}

bool names(const Event& failure, int rank) {
  return contains(failure.ranks, rank) ||
         failure.text.find(fmt::format("rank {}", rank)) != std::string::npos;
}

bool quotes(const Event& failure, int rank) {
  if (failure.code != "ABORTED") return false;
  const std::size_t words = failure.text.find(" aborted");
  const std::size_t who = failure.text.rfind(fmt::format("rank {} ", rank), words);
  // Of its own words alone: nobody else stands between.
  return words != std::string::npos && who != std::string::npos &&
         failure.text.rfind("rank ", words) == who;
}

}  // namespace crossdevice::chaos
