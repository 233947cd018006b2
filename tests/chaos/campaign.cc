// SPDX-License-Identifier: Apache-2.0
// The fault campaign: runs workers again and again, each time lets one fault happen, and says whether all was as promised; --help says what can be asked for.
//
// One line for each run, and last "N faults, N violations", where a fault counts only if it came about: a worker may have ended before its signal, a link may
// have had nothing to carry. Whether it then did anything is told apart (effect.h). The exit status is 1 where there are violations, or nothing has come about,
// and 77 where nothing was run. Faults of links and of clocks need root, network and time namespaces and /dev/net/tun.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossdevice/comm/ucx_transport.h"

#include "chaos/blame.h"
#include "chaos/conductor.h"
#include "chaos/effect.h"
#include "chaos/link_relay.h"
#include "chaos/plan.h"
#include "chaos/shifted_clock.h"
#include "chaos/tally.h"
#include "chaos/verdict.h"
#include "chaos/worker.h"

namespace crossdevice::chaos {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kIsSkipped = 77;

struct Arguments {
  double minutes = 0;
  std::uint64_t count = 0;
  std::uint64_t seed = 1;
  std::uint64_t first = 0;
  std::optional<std::uint64_t> only{};
  std::optional<int> worker{};
  int jobs = 1;
  double late_seconds = 1;
  bool is_quiet = false;
  std::string stories{};  // empty: none are written
  Abilities abilities{};
};

Fault fault_of(std::string_view name) {
  for (std::size_t i = 0; i < kNumFaults; ++i) {
    if (to_string(static_cast<Fault>(i)) == name) return static_cast<Fault>(i);
  }
  throw std::invalid_argument(fmt::format("no fault is called '{}'", name));
}

/// Empty: none.
std::string obstacle_to_namespaces() {
  std::string obstacle = LinkRelay::obstacle();
  return obstacle.empty() ? shifted_clock_obstacle() : obstacle;
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  Abilities& abilities = arguments.abilities;
  std::optional<bool> has_namespaces;
  std::optional<bool> has_ucx;
  std::vector<std::string> faults;
  CLI::App app(
      "Runs workers again and again, each time lets one fault happen, and says whether all was as "
      "promised.");
  app.add_option("--minutes", arguments.minutes, "Begin runs for so long");
  app.add_option("--count", arguments.count, "Run so many");
  app.add_option("--seed", arguments.seed, "What is drawn depends on it and on a run's number")
      ->capture_default_str();
  app.add_option("--first", arguments.first, "Number of the first run");
  app.add_option("--only", arguments.only, "Run this number alone, and say all that workers say");
  app.add_option("--jobs", arguments.jobs, "Runs at a time")->capture_default_str();
  app.add_option("--slowness", abilities.slowness, "All times are multiplied with it")
      ->capture_default_str();
  app.add_option("--late", arguments.late_seconds, "Seconds that a call may end after its deadline")
      ->capture_default_str();
  app.add_option("--max-workers", abilities.max_workers, "Workers of a run, at most")
      ->capture_default_str();
  app.add_option("--faults", faults, "Draw these alone, with commas between")->delimiter(',');
  app.add_option(
      "--namespaces", has_namespaces,
      "1: faults of links and of clocks too, as --faults does that names one, which need "
      "root; 0: none; otherwise where the machine allows it");
  app.add_option("--ucx", has_ucx,
                 "1: messages over UCX too; 0: none; otherwise where UCX is there");
  app.add_flag("--quiet", arguments.is_quiet, "Print violations alone, and the last line");
  app.add_option("--stories", arguments.stories,
                 "Write all that is known of each violation to a file of its own in this folder");
  app.footer(
      "Exit status:\n  0   no violation, and a fault has come\n  1   a violation, or no fault\n"
      "  2   an error\n  77  SKIPPED, without a run: what was asked for is not to be had here, "
      "which "
      "are namespaces\n      (--namespaces 1, a fault of links or clocks) or UCX (--ucx 1)");
  app.add_option("--worker", arguments.worker)->group("");  // of this program's own
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);  // NOLINT(concurrency-mt-unsafe): before any thread
  }
  for (const std::string& name : faults) {
    const Fault fault = fault_of(name);
    abilities.faults.push_back(fault);
    if (is_of_link(fault) || fault == Fault::CLOCK) has_namespaces = true;
  }
  // Before any thread.
  abilities.has_namespaces =
      has_namespaces.has_value() ? *has_namespaces : obstacle_to_namespaces().empty();
  abilities.has_ucx = has_ucx.has_value() ? *has_ucx : why_no_ucx().empty();
  return arguments;
}

/// With which a worker draws the same plan.
std::vector<std::string> worker_arguments(const Arguments& arguments, std::uint64_t number,
                                          int rank) {
  std::string faults;
  for (const Fault fault : arguments.abilities.faults) {
    if (!faults.empty()) faults += ',';
    faults += to_string(fault);
  }
  std::vector<std::string> texts = {
      "--worker",      std::to_string(rank),
      "--seed",        std::to_string(arguments.seed),
      "--only",        std::to_string(number),
      "--slowness",    fmt::format("{}", arguments.abilities.slowness),
      "--max-workers", std::to_string(arguments.abilities.max_workers),
      "--namespaces",  arguments.abilities.has_namespaces ? "1" : "0",
      "--ucx",         arguments.abilities.has_ucx ? "1" : "0"};
  if (!faults.empty()) texts.insert(texts.end(), {"--faults", faults});
  return texts;
}

std::string told(const RunResult& result) {
  std::string text;
  for (std::size_t rank = 0; rank < result.reports.size(); ++rank) {
    for (const Event& event : result.reports[rank].events) {
      text += fmt::format("  {}: {}\n", rank, to_line(event));
    }
  }
  return text + result.log;
}

/// Whether its signal came while it did what it was to be surprised in.
bool is_in_its_phase(const Plan& plan, const RunResult& result) {
  return result.struck_in.value_or("").starts_with(to_string(plan.phase));
}

/// Whether links were measured in it: not where messages go through shared memory, or all algorithms are given.
bool has_measured_links(const Plan& plan, const RunResult& result) {
  if (plan.place == Place::ONE_MACHINE || plan.algorithm.has_value()) return false;
  return std::any_of(result.reports.begin(), result.reports.end(), [](const WorkerReport& report) {
    return std::any_of(report.events.begin(), report.events.end(), [](const Event& event) {
      return event.kind == EventKind::DONE && event.step.starts_with("make ");
    });
  });
}

/// What has come of the packets that met a link in trouble; empty: there was to be none.
std::string met(const RunResult& result) {
  if (!result.in_trouble.has_value()) return {};
  const LinkCounts& counts = *result.in_trouble;
  return fmt::format(", {} packets came to its link, {} lost, {} late, {} doubled, {} delayed",
                     counts.offered, counts.lost, counts.late, counts.doubled, counts.delayed);
}

/// How soon workers heard that another one had been killed, and what the verdicts let pass; what all the processes that conduct runs write to.
class Heard {
 public:
  void add(const News& news) {
    const auto us = static_cast<std::int64_t>(news.seconds * 1e6);
    std::int64_t slowest = slowest_us_.load();
    while (us > slowest && !slowest_us_.compare_exchange_weak(slowest, us)) {
    }
    ++times_;
  }
  void add(const LetPass& passed) {
    deadlines_ += passed.deadlines;
    chains_ += passed.chains;
    measurements_ += passed.measurements;
    differences_ += passed.differences;
    differences_of_two_ += passed.differences_of_two;
  }
  [[nodiscard]] LetPass passed() const {
    return {.deadlines = deadlines_,
            .chains = chains_,
            .measurements = measurements_,
            .differences = differences_,
            .differences_of_two = differences_of_two_};
  }
  [[nodiscard]] std::int64_t times() const { return times_; }
  [[nodiscard]] double slowest_ms() const { return static_cast<double>(slowest_us_) / 1e3; }

 private:
  std::atomic<std::int64_t> times_{0};
  std::atomic<std::int64_t> slowest_us_{0};
  std::atomic<int> deadlines_{0};
  std::atomic<int> chains_{0};
  std::atomic<int> measurements_{0};
  std::atomic<int> differences_{0};
  std::atomic<int> differences_of_two_{0};
};

/// Lives as long as the process.
Heard& shared_heard() {
  static Heard* const heard = [] {
    void* const memory =
        ::mmap(nullptr, sizeof(Heard), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory to share");
    return new (memory) Heard;
  }();
  return *heard;
}

/// Of a process that has conducted a run.
constexpr int kIsViolation = 1;
constexpr int kIsInItsPhase = 2;
constexpr int kHasMeasured = 4;
constexpr int kFirstOfEffect = 8;  // times an Effect

/// Where it is not lost, whatever becomes of what is printed; where that is asked for.
void write_story(const Arguments& arguments, std::uint64_t number, const std::string& text) {
  if (arguments.stories.empty()) return;
  const std::filesystem::path folder = arguments.stories;
  std::filesystem::create_directories(folder);
  std::ofstream(folder / fmt::format("violation-{}-{}.txt", arguments.seed, number)) << text;
}

/// Prints its line; the exit status of whoever conducts it.
int run_one(const Arguments& arguments, std::uint64_t number) {
  constexpr double kLimitSeconds = 100;
  const Plan plan = draw_plan(arguments.seed, number, arguments.abilities);
  const RunResult result = conduct(
      plan, [&](int rank) { return worker_arguments(arguments, number, rank); },
      kLimitSeconds * arguments.abilities.slowness);
  const std::vector<std::string> found =
      violations(plan, result.reports, result.leftovers, arguments.late_seconds);
  const Effect effect = effect_of(plan, result);
  const std::string where =
      !result.struck_in.has_value()
          ? ""
          : ", in " + (result.struck_in->empty() ? "no step" : *result.struck_in);
  Heard here;
  for (const News& news : news_of_deaths(plan, result.reports)) {
    here.add(news);
    shared_heard().add(news);
  }
  shared_heard().add(let_pass(plan, result.reports));
  const std::string heard =
      here.times() == 0 ? "" : fmt::format(", heard of after {:.1f} ms", here.slowest_ms());
  std::string text = fmt::format("{}: {} - {} ({:.1f} s, {}{}{}{})\n", number, to_string(plan),
                                 found.empty() ? "well" : "VIOLATION", result.seconds,
                                 to_string(effect), met(result), where, heard);
  for (const std::string& each : found) text += "  " + each + '\n';
  if (!found.empty()) write_story(arguments, number, text + told(result));
  if (!found.empty() || arguments.only.has_value()) text += told(result);
  if (!found.empty() || !arguments.is_quiet) std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  return (found.empty() ? 0 : kIsViolation) | (is_in_its_phase(plan, result) ? kIsInItsPhase : 0) |
         (has_measured_links(plan, result) ? kHasMeasured : 0) |
         static_cast<int>(effect) * kFirstOfEffect;
}

/// Several runs at a time, each conducted by a process of its own.
class Campaign {
 public:
  explicit Campaign(const Arguments& arguments) : arguments_(arguments), next_(arguments.first) {}

  int run() {
    (void)shared_heard();  // before the others are started
    const Clock::time_point begun = Clock::now();
    const auto time_is_up = [&] {
      return arguments_.minutes > 0 &&
             Clock::now() - begun > std::chrono::duration<double>(arguments_.minutes * 60);
    };
    const auto is_last = [&] {
      return arguments_.count > 0 && next_ - arguments_.first >= arguments_.count;
    };
    while (!time_is_up() && !is_last()) {
      while (running_.size() >= static_cast<std::size_t>(arguments_.jobs)) reap();
      start(next_++);
    }
    while (!running_.empty()) reap();
    std::fputs(("\n" + tallies_.tables()).c_str(), stdout);
    std::printf("%llu of %llu signals for a worker in a call came while it was in one\n",
                static_cast<unsigned long long>(signals_in_call_),
                static_cast<unsigned long long>(signals_));
    std::printf(
        "%lld times a worker heard that another one had been killed, after at most %.1f ms\n",
        static_cast<long long>(shared_heard().times()), shared_heard().slowest_ms());
    print_what_was_let_pass();
    const Tally& all = tallies_.all();
    std::fputs(
        fmt::format("links were measured in {} of {} runs\n{}{} faults, {} violations\n",
                    runs_measured_, all.runs, tallies_.summary(), all.faults(), all.violations)
            .c_str(),
        stdout);
    return all.violations == 0 && all.faults() > 0 ? 0 : 1;
  }

 private:
  void start(std::uint64_t number) {
    std::fflush(stdout);
    const pid_t pid = ::fork();
    if (pid < 0) throw std::runtime_error("cannot start a process");
    if (pid == 0) {
      int status = 1;
      try {
        status = run_one(arguments_, number);
      } catch (const std::exception& error) {
        const std::string text = fmt::format("{}: {}\n", number, error.what());
        std::fputs(text.c_str(), stdout);
        std::fflush(stdout);
        write_story(arguments_, number, text);
      }
      ::_exit(status);
    }
    running_[pid] = number;
  }

  void reap() {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, 0);
    const auto found = running_.find(pid);
    if (found == running_.end()) return;
    const Plan plan = draw_plan(arguments_.seed, found->second, arguments_.abilities);
    const int said = WIFEXITED(status) ? WEXITSTATUS(status) : kIsViolation;
    tallies_.add(plan, static_cast<Effect>(said / kFirstOfEffect), (said & kIsViolation) != 0);
    runs_measured_ += (said & kHasMeasured) != 0 ? 1 : 0;
    if (plan.phase == Phase::CALL && (plan.fault == Fault::KILL || plan.fault == Fault::STOP)) {
      ++signals_;
      signals_in_call_ += (said & kIsInItsPhase) != 0 ? 1 : 0;
    }
    running_.erase(found);
  }

  static void print_what_was_let_pass() {
    const LetPass passed = shared_heard().passed();
    std::fputs(
        fmt::format("{} of {} deadlines that passed over a bad link blamed no end of it, but one "
                    "that waited for an end; {} whom a measurement of links waited for\n{} of {} "
                    "errors of calls that differed among more than "
                    "two workers had the versions of two alone\n",
                    passed.chains, passed.deadlines, passed.measurements, passed.differences_of_two,
                    passed.differences)
            .c_str(),
        stdout);
  }

  const Arguments& arguments_;
  std::uint64_t next_;
  std::map<pid_t, std::uint64_t> running_;
  std::uint64_t signals_ = 0;          // for a worker in a call
  std::uint64_t signals_in_call_ = 0;  // of them
  std::uint64_t runs_measured_ = 0;
  Tallies tallies_;
};

}  // namespace
}  // namespace crossdevice::chaos

int main(int argc, char** argv) {
  using namespace crossdevice::chaos;  // NOLINT(google-build-using-namespace)
  try {
    Arguments arguments = parse(argc, argv);
    if (arguments.worker.has_value()) {
      const Plan plan = draw_plan(arguments.seed, arguments.only.value_or(0), arguments.abilities);
      return run_worker(plan, *arguments.worker, kReportDescriptor, kGoDescriptor);
    }
    if (arguments.abilities.has_namespaces) {
      const std::string obstacle = obstacle_to_namespaces();
      if (!obstacle.empty()) {
        std::printf("SKIPPED: no namespaces: %s\n", obstacle.c_str());
        return kIsSkipped;
      }
    }
    if (arguments.abilities.has_ucx && !crossdevice::why_no_ucx().empty()) {
      std::printf("SKIPPED: no UCX: %s\n", crossdevice::why_no_ucx().c_str());
      return kIsSkipped;
    }
    if (arguments.only.has_value()) return run_one(arguments, *arguments.only) & kIsViolation;
    std::fputs(fmt::format("# seed {}; links and clocks: {}; UCX: {}\n", arguments.seed,
                           arguments.abilities.has_namespaces ? "yes" : "no",
                           arguments.abilities.has_ucx ? "yes" : "no")
                   .c_str(),
               stdout);
    return Campaign(arguments).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
