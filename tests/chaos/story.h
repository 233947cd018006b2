// SPDX-License-Identifier: Apache-2.0
/// What workers may tell of a run in which rank 2 of 3 is killed, for tests of the verdict.
#pragma once

#include <csignal>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "chaos/plan.h"
#include "chaos/report.h"
#include "chaos/verdict.h"

namespace crossdevice::chaos {

/// A worker's story, told step by step; each takes 1 ms unless it is said otherwise.
class Story {
 public:
  Story& done(const std::string& step, double seconds = 0.001) {
    begin(step);
    time_us_ += static_cast<std::int64_t>(seconds * 1e6);
    report_.events.push_back({.kind = EventKind::DONE, .time_us = time_us_, .step = step});
    return *this;
  }
  Story& failed(const std::string& step, const std::string& code, std::vector<int> culprits,
                const std::string& text = "failed", double seconds = 0.001) {
    return begin(step).fails(step, code, std::move(culprits), text, seconds);
  }
  /// What has begun.
  Story& fails(const std::string& step, const std::string& code, std::vector<int> culprits,
               const std::string& text = "failed", double seconds = 0.001) {
    time_us_ += static_cast<std::int64_t>(seconds * 1e6);
    report_.events.push_back({.kind = EventKind::FAIL,
                              .time_us = time_us_,
                              .step = step,
                              .code = code,
                              .ranks = std::move(culprits),
                              .text = text});
    return *this;
  }
  Story& begin(const std::string& step) {
    report_.events.push_back({.kind = EventKind::BEGIN, .time_us = time_us_, .step = step});
    return *this;
  }
  Story& busy(double seconds) {
    time_us_ += static_cast<std::int64_t>(seconds * 1e6);
    return *this;
  }
  Story& wrong(const std::string& text) {
    report_.events.push_back({.kind = EventKind::WRONG, .time_us = time_us_, .text = text});
    return *this;
  }
  Story& member(std::vector<int> ranks) {
    report_.events.push_back({.kind = EventKind::MEMBER,
                              .time_us = time_us_,
                              .ranks = std::move(ranks),
                              .counts = {++epoch_}});
    return *this;
  }
  /// The same with all that it knows of its cluster: its epoch, its own rank, and what had completed.
  Story& member(std::vector<int> ranks, int epoch, int rank, std::vector<int> completed = {1, 1}) {
    const auto num_workers = static_cast<int>(ranks.size());
    member(std::move(ranks));
    report_.events.back().counts = {epoch, rank, num_workers, completed[0], completed[1]};
    return *this;
  }
  /// It is stopped in the next step, so many seconds after which it goes on.
  Story& stands_still(double seconds) {
    report_.continued_us = time_us_ + static_cast<std::int64_t>(seconds * 1e6);
    return *this;
  }
  /// It gives up.
  Story& fault() {
    report_.events.push_back({.kind = EventKind::FAULT, .time_us = time_us_});
    return *this;
  }
  WorkerReport ended(int status = 0, std::vector<int> left_over = {0, 0, 0}) {
    if (status == 0) {
      report_.events.push_back(
          {.kind = EventKind::END, .time_us = time_us_, .counts = std::move(left_over)});
    }
    report_.status = status;
    return report_;
  }
  WorkerReport killed() {
    report_.closed_us = time_us_;
    return ended(-SIGKILL);
  }
  WorkerReport hanging() { return report_; }

 private:
  std::int64_t time_us_ = 1'000'000;
  int epoch_ = 1;
  WorkerReport report_;
};

inline Story joined() { return Story().done("join").done("make 1").done("call 1 0"); }
/// Of the survivors of rank 2.
inline Story bereaved() {
  return joined().failed("call 1 1", "UNAVAILABLE", {2}, "rank 2 is gone");
}
inline Story recovered(Story story) {
  return story.done("rebuild 1").member({0, 1}).done("make 2").done("call 2 0").done("barrier 2");
}
inline WorkerReport survivor() { return recovered(bereaved()).done("leave").ended(); }
inline WorkerReport victim() { return joined().begin("call 1 1").killed(); }

inline Plan killing() {
  return {.num_workers = 3,
          .times = {.join = 10, .call = 1, .heartbeat = 2},
          .calls = {{}, {}, {}},
          .fault = Fault::KILL,
          .victim = 2,
          .call = 1};
}

inline std::vector<std::string> verdict(const Plan& plan, const WorkerReport& first,
                                        const WorkerReport& second, const WorkerReport& third) {
  return violations(plan, {first, second, third}, {});
}
}  // namespace crossdevice::chaos
