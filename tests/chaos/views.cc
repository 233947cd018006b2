// SPDX-License-Identifier: Apache-2.0
#include "chaos/views.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace crossdevice::chaos {
namespace {

/// Epoch and number; {0, 0}: none.
using Completed = std::pair<int, int>;

/// What one worker says of one epoch.
struct View {
  int worker = 0;
  int epoch = 0;
  int rank = 0;
  int num_workers = 0;
  Completed completed{};
  std::vector<int> members{};
};

std::vector<View> views_of(const std::vector<WorkerReport>& reports) {
  std::vector<View> views;
  for (std::size_t worker = 0; worker < reports.size(); ++worker) {
    for (const Event& event : reports[worker].events) {
      if (event.kind != EventKind::MEMBER || event.counts.size() != 5) continue;
      views.push_back({.worker = static_cast<int>(worker),
                       .epoch = event.counts[0],
                       .rank = event.counts[1],
                       .num_workers = event.counts[2],
                       .completed = {event.counts[3], event.counts[4]},
                       .members = event.ranks});
    }
  }
  return views;
}

/// What a worker had completed before an epoch: at least, and at most where the call that failed then had completed on it nevertheless. Whoever has come to another
/// epoch meanwhile has gone on from what all had completed there.
std::array<Completed, 2> completed_before(const WorkerReport& report, int epoch) {
  std::array<Completed, 2> last{};
  int now = 1;
  for (const Event& event : report.events) {
    if (event.kind == EventKind::MEMBER && !event.counts.empty()) now = event.counts[0];
    if (now >= epoch) break;
    if (event.kind == EventKind::MEMBER && event.counts.size() == 5) {
      last.fill({event.counts[3], event.counts[4]});
    }
    int generation = 0;
    int index = 0;
    if (std::sscanf(event.step.c_str(), "call %d %d", &generation, &index) != 2)
      continue;  // NOLINT
    if (event.kind == EventKind::DONE)
      last = {Completed{now, index + 1}, Completed{now, index + 1}};
    if (event.kind == EventKind::FAIL) last[1] = {now, index + 1};
  }
  return last;
}

class Views {
 public:
  Views(const Plan& plan, const std::vector<WorkerReport>& reports)
      : plan_(plan), reports_(reports) {}

  std::vector<std::string> compare() {
    std::map<int, View> first_of_epoch;
    for (const View& view : views_of(reports_)) {
      judge(view);
      const auto [found, is_first] = first_of_epoch.try_emplace(view.epoch, view);
      if (is_first) {
        judge_completed(view);
      } else {
        compare(found->second, view);
      }
    }
    return std::move(found_);
  }

 private:
  /// By itself.
  void judge(const View& view) {
    const auto self = std::find(view.members.begin(), view.members.end(), view.worker);
    if (self == view.members.end() || self - view.members.begin() != view.rank ||
        static_cast<std::size_t>(view.num_workers) != view.members.size()) {
      found_.push_back(fmt::format("rank {}: is rank {} of {} of epoch {}, whose members are {}",
                                   view.worker, view.rank, view.num_workers, view.epoch,
                                   fmt::join(view.members, ", ")));
    }
    const auto [last, is_new] = last_epoch_.try_emplace(view.worker, 1);
    if (view.epoch <= last->second) {
      found_.push_back(fmt::format("rank {}: comes to epoch {} after epoch {}", view.worker,
                                   view.epoch, last->second));
    }
    last->second = view.epoch;
  }

  void compare(const View& one, const View& other) {
    if (one.members != other.members) {
      found_.push_back(fmt::format("epoch {} is of {} for rank {}, but of {} for rank {}",
                                   one.epoch, fmt::join(one.members, ", "), one.worker,
                                   fmt::join(other.members, ", "), other.worker));
    }
    if (one.completed != other.completed) {
      found_.push_back(
          fmt::format("epoch {} begins after #{} of epoch {} for rank {}, but after #{} of epoch "
                      "{} for rank {}",
                      one.epoch, one.completed.second, one.completed.first, one.worker,
                      other.completed.second, other.completed.first, other.worker));
    }
  }

  /// What its worker was told with what the members did.
  void judge_completed(const View& view) {
    std::array<Completed, 2> expected{};
    bool is_first = true;
    for (const int member : view.members) {
      if (member < 0 || member >= plan_.num_workers) return;
      const auto index = static_cast<std::size_t>(member);
      const std::array<Completed, 2> own = completed_before(reports_[index], view.epoch);
      for (std::size_t i = 0; i < own.size(); ++i) {
        expected[i] = is_first ? own[i] : std::min(expected[i], own[i]);
      }
      is_first = false;
    }
    if (view.completed >= expected[0] && view.completed <= expected[1]) return;
    found_.push_back(
        fmt::format("rank {}: epoch {} begins after #{} of epoch {}, not after #{} of epoch {}",
                    view.worker, view.epoch, view.completed.second, view.completed.first,
                    expected[0].second, expected[0].first));
  }

  const Plan& plan_;
  const std::vector<WorkerReport>& reports_;
  std::map<int, int> last_epoch_;  // by worker
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> differing_views(const Plan& plan,
                                         const std::vector<WorkerReport>& reports) {
  return Views(plan, reports).compare();
}

bool tells_of_epoch(const std::vector<WorkerReport>& reports, const Event& failure) {
  for (const WorkerReport& report : reports) {
    for (const Event& event : report.events) {
      if (event.kind != EventKind::MEMBER || event.counts.empty()) continue;
      const std::string name = fmt::format("epoch {}", event.counts[0]);
      for (std::size_t at = failure.text.find(name); at != std::string::npos;
           at = failure.text.find(name, at + 1)) {
        const std::size_t end = at + name.size();
        const bool is_longer =
            end < failure.text.size() && failure.text[end] >= '0' && failure.text[end] <= '9';
        if (!is_longer) return true;
      }
    }
  }
  return false;
}

}  // namespace crossdevice::chaos
