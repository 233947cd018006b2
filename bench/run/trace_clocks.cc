// SPDX-License-Identifier: Apache-2.0
#include "run/trace_clocks.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <initializer_list>

namespace crossdevice::run {
namespace {

/// A comparison that may be wrong by so many times what the best one may be says nothing beside it: somebody was busy elsewhere.
constexpr std::int64_t kPoor = 8;
/// 9 years, and 73: sums of some such numbers are numbers too.
constexpr std::int64_t kMostNs = std::int64_t{1} << 58;
constexpr std::int64_t kMostSystemNs = std::int64_t{1} << 61;

bool are_sensible(std::initializer_list<std::int64_t> times) {
  return std::ranges::all_of(times,
                             [](std::int64_t each) { return -kMostNs < each && each < kMostNs; });
}

}  // namespace

void TraceClocks::note_system_time(const std::string& clock, std::int64_t at_ns,
                                   std::int64_t system_ns) {
  if (!are_sensible({at_ns}) || system_ns < 0 || system_ns >= kMostSystemNs) return;
  to_system_time_ns_.try_emplace(clock, system_ns - at_ns);
}

void TraceClocks::note_offset(const std::string& clock, const std::string& other,
                              std::int64_t at_ns, std::int64_t to_add_ns, std::int64_t within_ns) {
  if (!are_sensible({at_ns, to_add_ns, within_ns}) || within_ns < 0 || clock == other) return;
  offsets_[clock][other].push_back({at_ns, to_add_ns, within_ns});
  offsets_[other][clock].push_back({at_ns + to_add_ns, -to_add_ns, within_ns});
}

void TraceClocks::settle(const std::string& reference) {
  for (auto& [clock, others] : offsets_) {
    for (auto& [other, points] : others) {
      const auto best = std::ranges::min_element(points, {}, &Point::within_ns);
      const std::int64_t limit_ns = kPoor * best->within_ns;
      std::erase_if(points, [&](const Point& each) { return each.within_ns > limit_ns; });
      std::ranges::sort(points, {}, &Point::at_ns);
    }
  }
  // From the reference outwards, the nearest first.
  reference_ = reference;
  ways_ = {{reference, {}}};
  for (std::deque<std::string> open = {reference}; !open.empty(); open.pop_front()) {
    const std::string& here = open.front();
    for (const auto& [other, points] : offsets_[here]) {
      const auto [way, is_new] = ways_.try_emplace(other);
      if (!is_new) continue;
      way->second = {&offsets_.at(other).at(here)};
      const std::vector<const Points*>& rest = ways_.at(here);
      way->second.insert(way->second.end(), rest.begin(), rest.end());
      open.push_back(other);
    }
  }
}

std::int64_t TraceClocks::offset_at(const Points& points, std::int64_t at_ns) {
  const auto next =
      std::upper_bound(points.begin(), points.end(), at_ns,
                       [](std::int64_t at, const Point& each) { return at < each.at_ns; });
  if (next == points.begin()) return next->to_add_ns;
  const Point& before = *std::prev(next);
  if (next == points.end()) return before.to_add_ns;
  const double share =
      static_cast<double>(at_ns - before.at_ns) / static_cast<double>(next->at_ns - before.at_ns);
  return before.to_add_ns +
         std::llround(share * static_cast<double>(next->to_add_ns - before.to_add_ns));
}

std::int64_t TraceClocks::to_add_ns(const std::string& clock, std::int64_t at_ns) const {
  if (const auto way = ways_.find(clock); way != ways_.end()) {
    std::int64_t sum = 0;
    for (const Points* const step : way->second) sum += offset_at(*step, at_ns + sum);
    return sum;
  }
  const auto mine = to_system_time_ns_.find(clock);
  const auto theirs = to_system_time_ns_.find(reference_);
  if (mine == to_system_time_ns_.end() || theirs == to_system_time_ns_.end()) return 0;
  return mine->second - theirs->second;
}

}  // namespace crossdevice::run
