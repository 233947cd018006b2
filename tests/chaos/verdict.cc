// SPDX-License-Identifier: Apache-2.0
#include "chaos/verdict.h"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "chaos/blame.h"
#include "chaos/hearing.h"
#include "chaos/steps.h"
#include "chaos/views.h"

namespace crossdevice::chaos {
namespace {

/// How long leaving may take: a goodbye, which waits for others that are silent.
constexpr double kLeaveHeartbeats = 3;

class Judge : private Hearing {
 public:
  Judge(const Plan& plan, const std::vector<WorkerReport>& reports, double late_seconds)
      : Hearing(plan, reports), late_seconds_(late_seconds), lost_(lost_workers(plan)) {
    // Whose link is bad while they meet, or who has not what it needs for it, may be left out, at once or when they meet again: they wait for it as long as they
    // are patient.
    const bool may_be_left_out =
        (is_of_link(plan.fault) || is_of_limits(plan.fault)) && plan.phase == Phase::REBUILD;
    if (may_be_left_out && !loses_worker(plan.fault)) {
      const int other =
          plan.fault == Fault::LINK_PARTED ? static_cast<int>(plan.amount) : plan.victim;
      if (!is_in_at_last(plan.victim)) {
        lost_.push_back(plan.victim);
      } else if (!is_in_at_last(other)) {
        lost_.push_back(other);  // it is as far from the victim as that is from it
      }
      std::sort(lost_.begin(), lost_.end());
    }
  }

  [[nodiscard]] std::vector<News> news_of_deaths() const {
    std::vector<News> news;
    for (int rank = 0; rank < plan_.num_workers; ++rank) {
      for (const Step& step : steps(rank)) {
        if (step.failure == nullptr || is_killed(plan_, rank)) continue;
        const std::optional<double> death = first_death(rank, step);
        if (!death.has_value()) continue;
        const double end = step.begun + *step.seconds;
        news.push_back({rank, step.name, std::max(end - std::max(step.begun, *death), 0.0)});
      }
    }
    return news;
  }

  std::vector<std::string> judge() {
    for (int rank = 0; rank < plan_.num_workers; ++rank) {
      judge_end(rank);
      judge_events(rank);
      judge_times(rank);
    }
    judge_what_comes_after();
    judge_news_of_giving_up();
    judge_news_of_deaths();
    judge_recovery();
    judge_late_ones();
    return std::move(found_);
  }

 private:
  [[nodiscard]] const WorkerReport& report(int rank) const {
    return reports_[static_cast<std::size_t>(rank)];
  }
  /// Whether it is in a cluster that was made anew.
  [[nodiscard]] bool is_member(int rank) const {
    const std::vector<Event>& events = report(rank).events;
    return std::any_of(events.begin(), events.end(),
                       [](const Event& event) { return event.kind == EventKind::MEMBER; });
  }
  /// Whether the last that it heard of a new cluster is that it is in it.
  [[nodiscard]] bool is_in_at_last(int rank) const {
    const std::vector<Event>& events = report(rank).events;
    const auto last = std::find_if(events.rbegin(), events.rend(), [](const Event& event) {
      return event.kind == EventKind::MEMBER ||
             (event.kind == EventKind::FAIL && event.step.starts_with("rebuild"));
    });
    return last != events.rend() && last->kind == EventKind::MEMBER;
  }
  /// Whether this worker, all of whose calls have come to their end, only did not hear that everybody has come to the last barrier, of which others have heard:
  /// they have left, and nobody is there to go on with. Whatever carries messages may lose the last one.
  [[nodiscard]] bool has_missed_the_end(int rank) const {
    if (!is_of_link(plan_.fault)) return false;
    return std::any_of(steps(rank).begin(), steps(rank).end(), [&](const Step& step) {
      return step.is_a("barrier") && step.failure != nullptr && has_anybody_done(step.name);
    });
  }
  [[nodiscard]] bool has_anybody_done(const std::string& name) const {
    return std::any_of(steps_.begin(), steps_.end(), [&](const std::vector<Step>& each) {
      return std::any_of(each.begin(), each.end(),
                         [&](const Step& step) { return step.name == name && step.is_done(); });
    });
  }
  /// Whether the end came before the link was down.
  [[nodiscard]] bool is_after_the_end() const {
    return is_of_link(plan_.fault) && has_anybody_done("barrier 1");
  }
  [[nodiscard]] bool has_come_to(int rank, std::string_view step) const {
    return std::any_of(steps(rank).begin(), steps(rank).end(),
                       [step](const Step& each) { return each.name == step; });
  }
  /// Whether a late worker has seen the first cluster's last barrier end because all had come to it, before they gave up waiting for it: then it has nothing left
  /// that could tell it more.
  [[nodiscard]] bool has_all_it_asked_for(int late) const {
    for (int rank = 0; rank < plan_.num_workers; ++rank) {
      if (!has_come_to(rank, "barrier 1")) return false;
    }
    return std::any_of(steps(late).begin(), steps(late).end(),
                       [](const Step& each) { return each.name == "barrier 1" && each.is_done(); });
  }
  [[nodiscard]] const Step* first_failure(int rank) const {
    for (const Step& step : steps(rank)) {
      if (step.failure != nullptr) return &step;
    }
    return nullptr;
  }
  [[nodiscard]] bool has_joined(int rank) const {
    return !steps(rank).empty() && steps(rank)[0].is_done();
  }

  void judge_end(int rank) {
    const std::optional<int> status = report(rank).status;
    const int expected = is_killed(plan_, rank) ? -SIGKILL : 0;
    if (!status.has_value()) {
      const bool has_steps = !steps(rank).empty();
      return complain(rank, "did not end; its last step is {}",
                      has_steps ? steps(rank).back().name : "none");
    }
    if (*status != expected) {
      return complain(rank, "ended with {}, not {}, after {}", *status, expected,
                      steps(rank).empty() ? "nothing" : steps(rank).back().name);
    }
    if (is_killed(plan_, rank)) {
      if (!report(rank).closed_us.has_value()) complain(rank, "died, and nobody saw when");
      return;
    }
    if (report(rank).events.empty() || report(rank).events.back().kind != EventKind::END) {
      return complain(rank, "has not told its end");
    }
    const Event& end = report(rank).events.back();
    if (std::any_of(end.counts.begin(), end.counts.end(), [](int count) { return count > 0; })) {
      complain(rank, "leaves threads, descriptors, mappings: {}; {}", fmt::join(end.counts, ", "),
               end.text);
    }
  }

  void judge_events(int rank) {
    for (const Event& event : report(rank).events) {
      if (event.kind == EventKind::WRONG) complain(rank, "in {}: {}", event.step, event.text);
      if (event.kind != EventKind::FAIL) continue;
      if (!may_fail(plan_)) complain(rank, "{} failed: {}", event.step, event.text);
      const bool differs = differs_in_one_call(plan_.fault);
      // Who was still in the call before may have been writing.
      const bool is_that_call = event.step == fmt::format("call 1 {}", plan_.call);
      if (differs && is_that_call && !event.inputs_intact) {
        complain(rank, "{} differs, but wrote before it was compared: {}", event.step, event.text);
      }
    }
  }

  [[nodiscard]] double limit_of(const Step& step) const {
    const Times& times = plan_.times;
    if (step.is_a("join") || step.is_a("make")) return times.join;
    if (step.is_a("barrier")) return times.call + times.heartbeat;
    if (step.is_a("rebuild")) return times.rebuild;
    if (step.is_a("leave")) return kLeaveHeartbeats * times.heartbeat;
    return times.call;
  }

  void judge_times(int rank) {
    if (is_killed(plan_, rank)) return;
    for (const Step& step : steps(rank)) {
      if (!step.seconds.has_value()) {
        if (report(rank).status.has_value()) complain(rank, "{} has no end", step.name);
        continue;
      }
      // Of who was stopped meanwhile, time counts from when it went on.
      const double end = step.begun + *step.seconds;
      const bool stood_still = step.begun <= went_on(rank) && went_on(rank) <= end;
      const double seconds = stood_still ? end - went_on(rank) : *step.seconds;
      const double limit = limit_of(step) + late_seconds_;
      if (seconds > limit) {
        complain(rank, "{} took {:.3f} s, more than {:.3f} s{}", step.name, seconds, limit,
                 step.failure == nullptr ? std::string() : ": " + step.failure->text);
      }
    }
  }
  [[nodiscard]] double went_on(int rank) const {
    return static_cast<double>(report(rank).continued_us.value_or(0)) / 1e6;
  }

  /// The dead among those with whom a worker made a step, if it was one that ends with the first death: who dies before all have met may come again, and who
  /// dies while they meet anew is left out.
  [[nodiscard]] std::vector<int> dead_members(int rank, const Step& step) const {
    if (!step.is_a("make") && !step.is_a("call") && !step.is_a("barrier")) return {};
    const std::vector<int>* const members = members_of(report(rank), step.generation());
    std::vector<int> dead;
    for (int each = 0; each < plan_.num_workers; ++each) {
      if (!is_killed(plan_, each) || !report(each).closed_us.has_value()) continue;
      if (members == nullptr || contains(*members, each)) dead.push_back(each);
    }
    return dead;
  }
  [[nodiscard]] std::optional<double> first_death(int rank, const Step& step) const {
    std::optional<double> first;
    for (const int dead : dead_members(rank, step)) {
      const double death = static_cast<double>(*report(dead).closed_us) / 1e6;
      first = std::min(first.value_or(death), death);
    }
    return first;
  }

  /// What has happened once spoils nothing that is made after it, and what happens to others nothing that is made without them.
  void judge_what_comes_after() {
    for (int rank = 0; rank < plan_.num_workers; ++rank) {
      for (const Step& step : steps(rank)) {
        const bool is_after = step.generation() > 1 && !step.is_a("rebuild");
        if (!is_after || step.failure == nullptr || !is_over(rank, step.generation())) continue;
        complain(rank, "{} fails, though nothing happens any more: {} {}", step.name,
                 step.failure->code, step.failure->text);
      }
    }
  }
  /// Whether nothing happens any more to the cluster that a worker makes then.
  [[nodiscard]] bool is_over(int rank, int generation) const {
    const std::vector<int>* const members = members_of(report(rank), generation);
    const auto is_one = [&](int each) { return is_faulty(plan_, each); };
    if (members != nullptr && std::none_of(members->begin(), members->end(), is_one)) return true;
    if (plan_.phase == Phase::REBUILD) return false;
    if (!is_of_link(plan_.fault)) return true;
    const std::optional<double> end = end_of_trouble();
    const std::string make = fmt::format("make {}", generation);
    return end.has_value() &&
           std::any_of(steps(rank).begin(), steps(rank).end(), [&](const Step& step) {
             return step.name == make && step.begun > *end + late_seconds_;
           });
  }
  /// Of a link; nothing: when the others have gone on without those behind it, or never.
  [[nodiscard]] std::optional<double> end_of_trouble() const {
    const std::optional<double> begin = time_of_fault();
    if (!is_of_link(plan_.fault) || plan_.lasting_us == 0 || !begin.has_value()) return {};
    return *begin + static_cast<double>(plan_.lasting_us) / 1e6;
  }

  /// Who gives up is heard at once, long before a deadline.
  void judge_news_of_giving_up() {
    if (plan_.fault != Fault::THROW || plan_.phase == Phase::REBUILD) return;
    const std::optional<double> given_up = time_of_fault();
    if (!given_up.has_value()) return;
    const double limit = std::max(plan_.times.death, late_seconds_);
    for (int rank = 0; rank < plan_.num_workers; ++rank) {
      const Step* step = first_failure(rank);
      if (rank == plan_.victim || step == nullptr) continue;
      const double after = step->begun + *step->seconds - std::max(step->begun, *given_up);
      if (after <= limit) continue;
      complain(rank, "{} ended {:.3f} s after rank {} gave up, more than {:.3f} s", step->name,
               after, plan_.victim, limit);
    }
  }
  [[nodiscard]] std::optional<double> time_of_fault() const {
    for (const Event& event : report(plan_.victim).events) {
      if (event.kind == EventKind::FAULT) return static_cast<double>(event.time_us) / 1e6;
    }
    return std::nullopt;
  }

  /// The kernel of the machine on which somebody dies tells the others at once, for which a second leaves room enough; across machines they may have to miss
  /// its heartbeat.
  void judge_news_of_deaths() {
    const double limit = plan_.place == Place::NAMESPACES
                             ? plan_.times.heartbeat + late_seconds_
                             : std::max(plan_.times.death, late_seconds_);
    for (const News& each : news_of_deaths()) {
      if (each.seconds <= limit) continue;
      complain(each.rank, "{} ended {:.3f} s after a death, more than {:.3f} s", each.step,
               each.seconds, limit);
    }
    for (int rank = 0; rank < plan_.num_workers; ++rank) {
      for (const Step& step : steps(rank)) {
        if (step.failure != nullptr && !is_killed(plan_, rank)) judge_news(rank, step);
        if (step.is_a("rebuild") && !is_killed(plan_, rank)) judge_rebuild(rank, step);
      }
    }
  }
  void judge_news(int rank, const Step& step) {
    const std::vector<int> dead = dead_members(rank, step);
    if (dead.empty() || is_word_of_who_gives_up(plan_, *step.failure)) return;
    const bool is_named = std::any_of(
        dead.begin(), dead.end(), [&](int each) { return contains(step.failure->ranks, each); });
    if (is_named && step.failure->code == "UNAVAILABLE") return;
    complain(rank, "{}: after the death of rank {} comes a {} of {}: {}", step.name, dead[0],
             step.failure->code, fmt::join(step.failure->ranks, ", "), step.failure->text);
  }

  /// Patience is for those that may live; who dies while the others meet anew holds them up no longer, and who is silent until its heartbeat is missed.
  void judge_rebuild(int rank, const Step& step) {
    if (!step.seconds.has_value() || !can_go_on(plan_)) return;
    const double end = step.begun + *step.seconds;
    const std::optional<double> waited = waited_in_vain(rank, step, end);
    const double silent = plan_.fault == Fault::KILL ? 0 : plan_.times.heartbeat;
    // Who has come and is silent then is in an epoch that does not come together, after which the others meet once more.
    const int meetings = plan_.phase == Phase::REBUILD && plan_.fault != Fault::KILL ? 2 : 1;
    const double limit = meetings * (plan_.times.patience + silent) + late_seconds_;
    if (!waited.has_value() || *waited <= limit) return;
    complain(rank, "{} ended {:.3f} s after all was there that it waits for, more than {:.3f} s",
             step.name, *waited, limit);
  }
  /// How long ago the last thing was that a rebuild may have waited for; nothing: that is still to come.
  [[nodiscard]] std::optional<double> waited_in_vain(int rank, const Step& step, double end) const {
    double begin = std::max(step.begun, std::min(went_on(rank), end));
    for (int each = 0; each < plan_.num_workers; ++each) {
      const double death = static_cast<double>(report(each).closed_us.value_or(0)) / 1e6;
      if (report(each).status == -SIGKILL && death < end) begin = std::max(begin, death);
      if (contains(lost_, each)) continue;
      for (const Step& other : steps(each)) {
        if (other.is_a("rebuild") && other.begun < end) begin = std::max(begin, other.begun);
      }
    }
    if (!is_of_link(plan_.fault)) return end - begin;
    if (contains(lost_, rank)) return {};  // it hears of the others when its link is up again
    if (plan_.lasting_us == 0) return end - begin;
    const std::optional<double> trouble = end_of_trouble();
    if (!trouble.has_value() || *trouble >= end) return {};
    return end - std::max(begin, *trouble);
  }

  /// Of those that should be there in the end.
  void judge_recovery() {
    std::vector<int> left;
    for (int rank = 0; rank < plan_.num_workers; ++rank) {
      if (!contains(lost_, rank)) left.push_back(rank);
    }
    const auto all_joined =
        std::all_of(left.begin(), left.end(), [&](int rank) { return has_joined(rank); });
    // Whoever has not joined has no cluster to make anew; who is the first one to have joined may die before the last one has.
    const bool is_early = plan_.phase == Phase::JOIN || plan_.phase == Phase::MAKE;
    if (is_early && !all_joined) return;
    for (const int rank : left) {
      if (!can_go_on(plan_)) {
        judge_half(rank);
        continue;
      }
      if (plan_.phase == Phase::LEAVE) {
        judge_calls_before_leaving(rank);
        continue;
      }
      if (has_missed_the_end(rank)) continue;
      const Step* last = nullptr;
      for (const Step& step : steps(rank)) {
        if (!step.is_a("leave")) last = &step;
      }
      if (last == nullptr || !last->is_a("barrier") || !last->is_done()) {
        complain(rank, "does not go on: the last it did is {}{}",
                 last == nullptr ? "nothing" : last->name,
                 last != nullptr && last->failure != nullptr ? ": " + last->failure->text : "");
        continue;
      }
      judge_members(rank, left);
    }
  }

  /// Who is left is no more than half: it may not go on, and hears for whom it has waited.
  void judge_half(int rank) {
    if (is_member(rank)) complain(rank, "goes on, without more than half");
    for (const Step& step : steps(rank)) {
      if (!step.is_a("rebuild") || step.failure == nullptr) continue;
      const bool is_told =
          step.failure->code == "DEADLINE_EXCEEDED" || step.failure->code == "UNAVAILABLE";
      if (is_told && names(*step.failure, plan_.victim)) continue;
      complain(rank, "{}: who is but a half gets a {}: {}", step.name, step.failure->code,
               step.failure->text);
    }
  }

  void judge_calls_before_leaving(int rank) {
    for (const Step& step : steps(rank)) {
      if ((step.is_a("call") || step.is_a("make") || step.is_a("join")) && !step.is_done() &&
          step.seconds.has_value() && step.name.find(" 1") != std::string::npos) {
        complain(rank, "{} failed before anybody left: {}", step.name, step.failure->text);
      }
    }
  }

  void judge_members(int rank, const std::vector<int>& left) {
    const Event* members = nullptr;
    for (const Event& event : report(rank).events) {
      if (event.kind == EventKind::MEMBER) members = &event;
    }
    if (members == nullptr) {
      if (!lost_.empty() && !is_after_the_end()) complain(rank, "has not noticed the loss");
      return;
    }
    if (members->ranks != left) {
      complain(rank, "is in a cluster of {}, not of {}", fmt::join(members->ranks, ", "),
               fmt::join(left, ", "));
    }
  }

  /// Who was stopped or cut off finds itself left out.
  void judge_late_ones() {
    for (int rank = 0; rank < plan_.num_workers; ++rank) {
      if (is_hit(plan_, rank) && contains(lost_, rank)) judge_late_one(rank);
    }
  }
  void judge_late_one(int late) {
    if (plan_.fault == Fault::KILL) return;
    if (plan_.phase == Phase::JOIN || plan_.phase == Phase::LEAVE || is_after_the_end()) return;
    if (!can_go_on(plan_)) {
      if (is_member(late)) complain(late, "goes on, without more than half");
      return;
    }
    bool finds_out = false;
    for (const Step& step : steps(late)) {
      if (step.is_a("rebuild") && step.failure != nullptr) {
        // Of whoever was not shut out on purpose the others may have come to their end meanwhile.
        finds_out = step.failure->code == "ABORTED" || is_of_limits(plan_.fault) ||
                    (!loses_worker(plan_.fault) && step.failure->code == "UNAVAILABLE");
        if (!finds_out) {
          complain(late, "{}: who was left out gets a {}: {}", step.name, step.failure->code,
                   step.failure->text);
        }
        if (step.failure->code == "ABORTED" && !tells_of_epoch(reports_, *step.failure)) {
          complain(late, "{}: who was left out does not hear of which epoch: {}", step.name,
                   step.failure->text);
        }
      }
    }
    const bool is_in = is_member(late);
    if (is_in && plan_.phase != Phase::REBUILD) complain(late, "is in a new cluster");
    if (!is_in && !finds_out && !has_all_it_asked_for(late)) {
      complain(late, "has not found out that it was left out");
    }
  }

  double late_seconds_;
  std::vector<int> lost_;
};

}  // namespace

std::vector<std::string> violations(const Plan& plan, const std::vector<WorkerReport>& reports,
                                    const std::vector<std::string>& leftovers,
                                    double late_seconds) {
  std::vector<std::string> found = Judge(plan, reports, late_seconds).judge();
  for (std::string& blame : wrong_blame(plan, reports)) found.push_back(std::move(blame));
  for (std::string& view : differing_views(plan, reports)) found.push_back(std::move(view));
  for (const std::string& leftover : leftovers) found.push_back("left behind: " + leftover);
  return found;
}

std::vector<News> news_of_deaths(const Plan& plan, const std::vector<WorkerReport>& reports) {
  return Judge(plan, reports, 0).news_of_deaths();
}

}  // namespace crossdevice::chaos
