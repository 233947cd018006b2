// SPDX-License-Identifier: Apache-2.0
#include "chaos/blame.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "chaos/hearing.h"
#include "chaos/steps.h"
#include "chaos/views.h"

namespace crossdevice::chaos {
namespace {

/// Of the library's kinds of errors; others are named as C++ names them.
bool is_of_the_library(const Event& failure) {
  return failure.code.find_first_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos;
}

bool tells_of_difference(const Event& failure) {
  return failure.text.find("make different calls") != std::string::npos;
}

class Blame : private Hearing {
 public:
  Blame(const Plan& plan, const std::vector<WorkerReport>& reports) : Hearing(plan, reports) {}

  std::vector<std::string> judge() {
    for (int rank = 0; rank < plan_.num_workers; ++rank) {
      for (const Step& step : steps(rank)) {
        if (step.failure == nullptr) continue;
        judge_kind(rank, step);
        if (is_of_link(plan_.fault)) judge_link(rank, step);
      }
    }
    judge_first_failures();
    judge_parted_link();
    judge_differences();
    judge_completions();
    return std::move(found_);
  }
  [[nodiscard]] const LetPass& let_pass() const { return let_pass_; }

 private:
  [[nodiscard]] const Step* first_failure(int rank) const {
    for (const Step& step : steps(rank)) {
      if (step.failure != nullptr) return &step;
    }
    return nullptr;
  }

  // ------------------------------------------------------------------------------------------------ kinds

  void judge_kind(int rank, const Step& step) {
    const Event& failure = *step.failure;
    if (!is_of_the_library(failure)) {
      if (is_own(rank, step)) return;
      return complain(rank, "{} failed with a {}: {}", step.name, failure.code, failure.text);
    }
    if (step.is_a("leave")) complain(rank, "{} failed: {}", step.name, failure.text);
    if (!may_be(rank, step)) {
      complain(rank, "{}: a {} is not what {} causes: {}", step.name, failure.code,
               to_string(plan_.fault), failure.text);
    }
  }
  /// Of the program's, not of the library's.
  [[nodiscard]] bool is_own(int rank, const Step& step) const {
    if (rank != plan_.victim) return false;
    const Event& failure = *step.failure;
    if (plan_.fault == Fault::MEMORY) return step.is_a("memory") && failure.code == "bad_alloc";
    return plan_.fault == Fault::THROW && failure.code == "exception" &&
           failure.text.find(kGivesUpBecause) != std::string::npos;
  }
  [[nodiscard]] bool may_be(int rank, const Step& step) const {
    const std::string& code = step.failure->code;
    if (code == "DEADLINE_EXCEEDED" || code == "UNAVAILABLE" || code == "ABORTED") return true;
    if (code == "INTERNAL") return is_mismatch(plan_.fault) && !step.is_a("rebuild");
    const bool is_of_victim = rank == plan_.victim || names(*step.failure, plan_.victim);
    return code == "RESOURCE_EXHAUSTED" && is_of_limits(plan_.fault) && is_of_victim;
  }

  // ------------------------------------------------------------------------------------------------ blame

  /// Whether it tells what another one that has failed had to say.
  [[nodiscard]] bool quotes_one_that_failed(const Event& failure, int rank) const {
    return quotes(failure, rank) && first_failure(rank) != nullptr;
  }
  [[nodiscard]] bool quotes_anybody(const Event& failure) const {
    for (int each = 0; each < plan_.num_workers; ++each) {
      if (contains(failure.ranks, each) && quotes_one_that_failed(failure, each)) return true;
    }
    return false;
  }

  void judge_first_failures() {
    if (!may_fail(plan_) || is_mismatch(plan_.fault)) return;
    struct First {
      int rank;
      double time;
      const Step* step;
    };
    std::vector<First> firsts;
    for (int rank = 0; rank < plan_.num_workers; ++rank) {
      if (const Step* step = first_failure(rank)) {
        firsts.push_back({rank, step->begun + step->seconds.value_or(0), step});
      }
    }
    std::sort(firsts.begin(), firsts.end(),
              [](const First& a, const First& b) { return a.time < b.time; });
    bool is_earliest = true;
    for (const First& first : firsts) {
      if (is_to_blame(first.rank)) {
        judge_own_failure(first.rank, *first.step);
        continue;
      }
      judge_first_failure(first.rank, *first.step, is_earliest);
      is_earliest = false;
    }
  }

  /// Of who is not faulty.
  void judge_first_failure(int rank, const Step& step, bool is_earliest) {
    const Event& failure = *step.failure;
    if (is_word_of_who_gives_up(plan_, failure)) return;
    const std::vector<int> faulty = to_blame();
    // A program goes by culprits(). Of who lacks something, or is cut off, the text may say it.
    const bool goes_by_ranks =
        plan_.fault == Fault::STOP || plan_.fault == Fault::THROW || plan_.fault == Fault::KILL;
    const bool is_named = std::any_of(faulty.begin(), faulty.end(), [&](int each) {
      return goes_by_ranks ? contains(failure.ranks, each) : names(failure, each);
    });
    if (!is_named && is_earliest && !is_unclear(rank, step)) {
      complain(rank, "{}: the first error does not name rank {}: {} {}", step.name, faulty[0],
               failure.code, failure.text);
    }
    if (!is_named && !quotes_anybody(failure) && !is_unclear(rank, step)) {
      complain(rank, "{}: the error names nobody who has failed: {} {}", step.name, failure.code,
               failure.text);
    }
    if (plan_.fault == Fault::THROW && plan_.phase != Phase::REBUILD) {
      const bool is_told = failure.text.find(kGivesUpBecause) != std::string::npos;
      if (failure.code != "ABORTED" || !is_told) {
        complain(rank, "{}: who gives up causes a {}: {}", step.name, failure.code, failure.text);
      }
    }
    judge_culprits(rank, step);
  }
  [[nodiscard]] bool is_to_blame(int rank) const {
    return is_faulty(plan_, rank) || is_at_an_end(rank);
  }
  /// The first one to be lost, whose end is heard of before anything else happens, or else whoever is hit.
  [[nodiscard]] std::vector<int> to_blame() const {
    if (plan_.first_lost.has_value()) return {*plan_.first_lost};
    std::vector<int> ranks;
    for (int rank = 0; rank < plan_.num_workers; ++rank) {
      if (is_at_an_end(rank)) ranks.push_back(rank);
    }
    return ranks;
  }

  void judge_culprits(int rank, const Step& step) {
    const Event& failure = *step.failure;
    for (const int culprit : failure.ranks) {
      if (is_to_blame(culprit) || quotes_one_that_failed(failure, culprit)) continue;
      if (is_unclear(rank, step) || has_gone_on(culprit, rank, step)) continue;
      if (culprit < 0 && is_of_own_replicas(rank, failure)) continue;
      complain(rank, "{} blames rank {}: {} {}", step.name, culprit, failure.code, failure.text);
    }
  }

  /// Threads of a process that was stopped miss each other, too.
  [[nodiscard]] bool is_of_own_replicas(int rank, const Event& failure) const {
    return is_hit(plan_, rank) && plan_.engine == Engine::STRATEGY &&
           failure.text.find("waiting for replica") != std::string::npos;
  }
  /// Whether who was stopped finds what the other one has done meanwhile: it has left; or, as memory that is shared still tells, it has given up, of which nobody is
  /// left to say why.
  [[nodiscard]] bool has_gone_on(int culprit, int rank, const Step& step) const {
    if (plan_.fault != Fault::STOP || rank != plan_.victim || culprit < 0) return false;
    const Event& failure = *step.failure;
    const bool has_given_up = failure.code == "DEADLINE_EXCEEDED" &&
                              first_failure(culprit) != nullptr && tells_of(failure, culprit) &&
                              failure.text.ends_with(" has given up");
    if (has_given_up || failure.code != "UNAVAILABLE") return has_given_up;
    const double end = step.begun + step.seconds.value_or(0);
    const std::vector<Step>& theirs = steps(culprit);
    return std::any_of(theirs.begin(), theirs.end(),
                       [&](const Step& each) { return each.is_a("leave") && each.begun <= end; });
  }
  /// Of who is faulty itself.
  void judge_own_failure(int rank, const Step& step) {
    if (is_of_link(plan_.fault)) return;  // judge_link()
    // To who meets the others it is they who do not answer.
    if (step.is_a("join")) return;
    judge_culprits(rank, step);
  }

  // ------------------------------------------------------------------------------------------------ links

  /// Whose link is bad cannot tell whether it is its own or the other one's. Over a link that is slow or loses packets others may seem to be late
  /// besides (judge_link()); and who hears nothing itself, but is heard, waits as the others do, until a heartbeat is missed: then it is known who is not heard.
  [[nodiscard]] bool is_unclear(int rank, const Step& step) const {
    if (!is_of_link(plan_.fault)) return false;
    const Event& failure = *step.failure;
    const bool is_silent = silences_link(plan_.fault) && plan_.amount != kIsDeaf;
    return is_at_an_end(rank) || (failure.code == "DEADLINE_EXCEEDED" && !is_silent) ||
           is_word_of_the_deaf(step) || is_word_of_a_chief_at_an_end(step);
  }
  /// A chief whose link is bad tells the others of what it has seen at this end: of a worker's connection, say, which that worker has given up to come anew; or, where
  /// it hears nothing, of the first one that it misses.
  [[nodiscard]] bool is_word_of_a_chief_at_an_end(const Step& step) const {
    const std::string& text = step.failure->text;
    const bool hears_nothing = silences_link(plan_.fault) && plan_.amount == kIsDeaf;
    return is_at_an_end(0) && step.generation() == 1 && step.failure->code == "UNAVAILABLE" &&
           (text.find(" is gone: its connection ended") != std::string::npos ||
            (hears_nothing && text.find(" is gone: no heartbeat") != std::string::npos));
  }
  /// Who hears nothing, but is heard, says at the heartbeat's limit that the chief is gone. Whoever hears that first, while what communicates is made, tells
  /// it on as that worker's word. Of a call all hear from the chief itself that it is there.
  [[nodiscard]] bool is_word_of_the_deaf(const Step& step) const {
    const Event& failure = *step.failure;
    if (!step.is_a("make") || !silences_link(plan_.fault) || plan_.amount != kIsDeaf) return false;
    const std::size_t who = failure.text.find(fmt::format("rank {} (", plan_.victim));
    const std::size_t says = failure.text.find("): rank ", who);
    return who != std::string::npos && says != std::string::npos &&
           failure.text.find(" is gone: no heartbeat for ", says) != std::string::npos;
  }

  void judge_link(int rank, const Step& step) {
    const Event& failure = *step.failure;
    if (failure.ranks.empty() && !tells_of_epoch(reports_, failure)) {
      complain(rank, "{}: the error names nobody: {} {}", step.name, failure.code, failure.text);
    }
    if (failure.code != "DEADLINE_EXCEEDED" || is_to_blame(rank)) return;
    ++let_pass_.deadlines;
    if (names_one_to_blame(failure)) return;
    if (failure.text.find("while the links were measured: ") != std::string::npos) {
      // Those at the bad link have connected at last, and the deadline passes at some message behind it.
      ++let_pass_.measurements;
    } else if (waits_for_one_to_blame(step, {rank})) {
      ++let_pass_.chains;
    } else {
      complain(rank, "{}: the error blames nobody whose link is bad: {} of {}: {}", step.name,
               failure.code, fmt::join(failure.ranks, ", "), failure.text);
    }
  }
  [[nodiscard]] bool names_one_to_blame(const Event& failure) const {
    return std::any_of(failure.ranks.begin(), failure.ranks.end(),
                       [&](int culprit) { return is_to_blame(culprit); });
  }
  /// Whether somebody whom it blames fails in the same step because of one whose link is bad, or of somebody else who does: rank 2 waits for rank 1, which
  /// waits for rank 0, and cannot know that.
  [[nodiscard]] bool waits_for_one_to_blame(const Step& step, std::vector<int> seen) const {
    for (const int culprit : step.failure->ranks) {
      if (culprit < 0 || contains(seen, culprit)) continue;
      seen.push_back(culprit);
      for (const Step& theirs : steps(culprit)) {
        if (theirs.name != step.name || theirs.failure == nullptr) continue;
        const Event& failure = *theirs.failure;
        if (names_one_to_blame(failure) || waits_for_one_to_blame(theirs, seen)) return true;
      }
    }
    return false;
  }

  void judge_parted_link() {
    if (plan_.fault != Fault::LINK_PARTED || plan_.first_lost.has_value()) return;
    const Step* first = nullptr;
    int who = 0;
    for (int rank = 0; rank < plan_.num_workers; ++rank) {
      const Step* const step = first_failure(rank);
      if (step == nullptr) continue;
      if (names_parted(*step->failure)) return;
      if (first == nullptr) who = rank;
      if (first == nullptr) first = step;
    }
    if (first == nullptr) return;
    complain(who, "{}: no first error names a worker of the parted link: {}", first->name,
             first->failure->text);
  }
  /// Whether it blames a worker at an end of the link that is parted.
  [[nodiscard]] bool names_parted(const Event& failure) const {
    return std::any_of(failure.ranks.begin(), failure.ranks.end(),
                       [&](int culprit) { return is_at_an_end(culprit); });
  }
  /// Of those to whom the fault happens: of a link that is parted the others, too.
  [[nodiscard]] bool is_at_an_end(int rank) const {
    return is_hit(plan_, rank) ||
           (plan_.fault == Fault::LINK_PARTED &&
            host_of(plan_, rank) == host_of(plan_, static_cast<int>(plan_.amount)));
  }

  // ------------------------------------------------------------------------------------------------ calls that differ

  /// Nobody completes what differs, and everybody is told.
  void judge_differences() {
    if (!is_mismatch(plan_.fault) || !has_come_to_difference()) return;
    for (int rank = 0; rank < plan_.num_workers; ++rank) {
      const Step* const step = first_failure(rank);
      if (step == nullptr) {
        complain(rank, "call 1 {} differs, and it has not noticed", plan_.call);
      } else {
        judge_difference(rank, *step);
      }
    }
  }
  /// Whoever leaves a call out differs where it makes the next one, or comes to the end without it.
  [[nodiscard]] bool has_come_to_difference() const {
    const std::vector<Step>& of_victim = steps(plan_.victim);
    return std::any_of(of_victim.begin(), of_victim.end(), [&](const Step& step) {
      const bool is_of_calls = step.is_a("call") || step.is_a("barrier");
      return is_of_calls && step.generation() == 1 && place_of(step) >= plan_.call;
    });
  }
  /// Its place among the first cluster's steps; the last barrier comes after all calls.
  [[nodiscard]] std::size_t place_of(const Step& step) const {
    if (step.is_a("barrier")) return plan_.calls.size();
    return step.is_a("call") ? static_cast<std::size_t>(step.index()) : 0;
  }
  /// In which it must fail, if not in an earlier one that it had not left yet.
  [[nodiscard]] std::size_t differing_place(int rank) const {
    const bool is_victim = rank == plan_.victim;
    const bool is_behind =
        (plan_.fault == Fault::SKIP && is_victim) || (plan_.fault == Fault::TWICE && !is_victim);
    return plan_.call + (is_behind ? 1 : 0);
  }

  void judge_difference(int rank, const Step& step) {
    const Event& failure = *step.failure;
    if (step.generation() != 1 || place_of(step) > differing_place(rank)) {
      return complain(rank, "completes call 1 {}, which differs, and fails in {}: {}", plan_.call,
                      step.name, failure.text);
    }
    // Nobody makes a call that could be compared: it is the end.
    const bool is_at_the_end =
        !differs_in_one_call(plan_.fault) && plan_.call + 1 == plan_.calls.size();
    if (is_at_the_end && !tells_of_difference(failure)) return judge_absence(rank, step);
    // An exception that leaves run() is passed on to who is in the same call.
    const bool is_told = failure.code == "INTERNAL" ||
                         (failure.code == "ABORTED" && plan_.engine == Engine::STRATEGY);
    if (!is_told || !tells_of_difference(failure)) {
      return complain(rank, "{}: a difference is a {}: {}", step.name, failure.code, failure.text);
    }
    judge_versions(rank, step);
  }

  /// Who waits for somebody that does not come, and who is told by one that has.
  void judge_absence(int rank, const Step& step) {
    const Event& failure = *step.failure;
    // One call more is the victim's, and then it is the others that do not come to it.
    const bool is_missed_by_victim = plan_.fault == Fault::TWICE;
    const bool waits = (rank == plan_.victim) == is_missed_by_victim;
    const auto is_missing = [&](int each) { return (each == plan_.victim) != is_missed_by_victim; };
    const bool are_missing = !failure.ranks.empty() &&
                             std::all_of(failure.ranks.begin(), failure.ranks.end(), is_missing);
    const bool is_fair = waits && failure.code == "DEADLINE_EXCEEDED" && are_missing;
    if (is_fair || quotes_anybody(failure)) return;
    complain(rank, "{}: who does not come causes a {} of {}: {}", step.name, failure.code,
             fmt::join(failure.ranks, ", "), failure.text);
  }

  /// Everybody hears what all have called. Where not all come in time to say so, two that have seen the difference between them tell of these two; then it is the
  /// victim and another one.
  void judge_versions(int rank, const Step& step) {
    const Event& failure = *step.failure;
    std::vector<int> untold;
    for (int each = 0; each < plan_.num_workers; ++each) {
      if (!tells_of(failure, each)) untold.push_back(each);
    }
    const bool is_of_two = failure.text.find("members make different calls") != std::string::npos;
    if (plan_.num_workers > 2) ++let_pass_.differences;
    if (plan_.num_workers > 2 && is_of_two) ++let_pass_.differences_of_two;
    // Who hears it of one who passes it on need not be one of them.
    const bool is_passed_on =
        failure.code == "ABORTED" ||
        failure.text.find("): members make different calls: ") != std::string::npos;
    const auto is_one_of_two = [&](int each) {
      return each == plan_.victim || (each == rank && !is_passed_on);
    };
    if (is_of_two) std::erase_if(untold, [&](int each) { return !is_one_of_two(each); });
    if (!untold.empty()) {
      complain(rank, "{}: a difference without the versions of {}: {}", step.name,
               fmt::join(untold, ", "), failure.text);
    }
    if (failure.code == "ABORTED") return;  // whose culprits are those whose words it passes on
    const bool is_alone = failure.ranks == std::vector{plan_.victim};
    // Of two the one that differs does not know that it does; whoever hears it of that one hears it so.
    const std::size_t who = failure.text.find(fmt::format("rank {} (", plan_.victim));
    const bool is_victims_word =
        who != std::string::npos &&
        failure.text.find("): members make different calls: ", who) != std::string::npos;
    const bool is_fair = is_of_two && (rank == plan_.victim || is_victims_word)
                             ? !failure.ranks.empty()
                             : contains(failure.ranks, plan_.victim) &&
                                   (is_alone || !(is_of_two || knows_most(failure)));
    if (is_fair) return;
    complain(rank, "{}: not rank {} alone differs from most, it says, but {}: {}", step.name,
             plan_.victim, fmt::join(failure.ranks, ", "), failure.text);
  }
  /// The number of a worker's operation, as a difference tells it: "#4"; empty: it does not.
  [[nodiscard]] static std::string number_of(const Event& failure, int rank) {
    const std::size_t at = failure.text.find(fmt::format("rank {} ", rank));
    if (at == std::string::npos) return {};
    const std::size_t number = failure.text.find('#', at);
    if (number == std::string::npos) return {};
    return failure.text.substr(number, failure.text.find(' ', number) - number);
  }
  /// Whether two others are as far as the victim, or nobody is and two others are in one operation. Else nobody can say who is right.
  [[nodiscard]] bool knows_most(const Event& failure) const {
    const std::string of_victim = number_of(failure, plan_.victim);
    std::map<std::string, int> others_in;
    for (int each = 0; each < plan_.num_workers; ++each) {
      if (each != plan_.victim) ++others_in[number_of(failure, each)];
    }
    if (others_in.contains(of_victim)) return others_in[of_victim] > 1;
    return std::any_of(others_in.begin(), others_in.end(),
                       [](const auto& each) { return !each.first.empty() && each.second > 1; });
  }

  // ------------------------------------------------------------------------------------------------ calls that nobody can complete

  /// Where the victim has thrown in the place of its part of a call.
  void judge_completions() {
    if (plan_.fault != Fault::THROW || plan_.phase != Phase::CALL) return;
    const bool is_without_it = plan_.amount == kInPlaceOfIt || plan_.amount == kInHook;
    if (!is_without_it || !needs_all(plan_.calls[plan_.call]) || !has_thrown()) return;
    const std::string call = fmt::format("call 1 {}", plan_.call);
    for (int rank = 0; rank < plan_.num_workers; ++rank) {
      for (const Step& step : steps(rank)) {
        if (rank == plan_.victim || step.name != call || !step.is_done()) continue;
        complain(rank, "completes {}, in which rank {} gave up", call, plan_.victim);
      }
    }
  }
  [[nodiscard]] bool has_thrown() const {
    const std::vector<Step>& of_victim = steps(plan_.victim);
    return std::any_of(of_victim.begin(), of_victim.end(), [](const Step& step) {
      return step.failure != nullptr && step.failure->code == "exception";
    });
  }
  /// Whether no worker has its result without the part of every other one. A result without elements is had at once.
  [[nodiscard]] static bool needs_all(const Call& call) {
    return call.count > 0 && call.form != Form::BROADCAST && call.form != Form::ROOTED_REDUCE &&
           call.form != Form::ROOTED_GATHER;
  }

  LetPass let_pass_;
};

}  // namespace

std::vector<std::string> wrong_blame(const Plan& plan, const std::vector<WorkerReport>& reports) {
  return Blame(plan, reports).judge();
}

LetPass let_pass(const Plan& plan, const std::vector<WorkerReport>& reports) {
  Blame blame(plan, reports);
  (void)blame.judge();
  return blame.let_pass();
}

bool is_word_of_who_gives_up(const Plan& plan, const Event& failure) {
  return plan.fault == Fault::THROW && plan.phase == Phase::REBUILD && failure.code == "ABORTED" &&
         names(failure, plan.victim);
}

}  // namespace crossdevice::chaos
