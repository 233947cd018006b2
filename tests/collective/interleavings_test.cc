// SPDX-License-Identifier: Apache-2.0
/// The schedule executors of a whole group over a network of which a seed draws every move: each seed is another group, other jobs and another order of
/// events, and replays exactly. CROSSDEVICE_SEEDS says how many to run, CROSSDEVICE_FIRST_SEED where to begin: a report names the seed that failed.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/schedule_executor.h"
#include "crossdevice/core/deadline.h"

#include "collective/interleaving_cases.h"
#include "support/choices.h"
#include "support/drawn_network.h"
#include "support/sanitizers.h"

namespace crossdevice {
namespace {

using testing::Choices;
using testing::DrawnJob;
using testing::DrawnNetwork;

/// Whether a share of the seeds says anything.
constexpr std::uint64_t kEnoughSeeds = 20;
constexpr std::uint64_t kUsualSeeds = testing::kIsSanitized ? 40 : 120;

enum class Ending : std::uint8_t { WELL, FAULT, DEADLINE, DEPARTURE };

/// What a seed says of a run, and what came of it.
struct Outcome {
  std::uint64_t trace = 0;
  std::size_t num_steps = 0;
  std::size_t num_whole = 0;  // ranks that came to their end
  bool was_disturbed = false;
  std::size_t num_ranks = 0;
  std::vector<std::string> troubles{};
};

/// Two rounds of jobs with one executor for each rank, as callers have it: what the first one leaves behind is there in the second one.
class Group {
 public:
  Group(std::uint64_t seed, Ending ending)
      : choices_(seed), num_ranks_(draw_num_ranks()), ending_(ending) {
    for (std::vector<DrawnJob>& round : rounds_) {
      const std::size_t num_jobs = 1 + choices_.below(num_ranks_ > 8 ? 1 : 3);
      for (std::size_t i = 0; i < num_jobs; ++i) round.emplace_back(choices_, num_ranks_);
    }
    victim_ = choices_.below(num_ranks_);
  }

  Outcome run() {
    DrawnNetwork network(num_ranks_, choices_.seed());
    if (ending_ == Ending::FAULT) {
      // Early ones more often: there are runs of a hundred steps and of ten thousand.
      const std::size_t bound = std::size_t{1} << (4 + choices_.below(9));
      network.plan({.kind = choices_.once_in(2) ? DrawnNetwork::Fault::Kind::STOP
                                                : DrawnNetwork::Fault::Kind::RESET,
                    .step = choices_.below(bound),
                    .rank = victim_});
    }
    std::vector<std::unique_ptr<Transport>> transports = make_drawn_transports(network);
    std::vector<std::size_t> num_rounds(num_ranks_);  // that ended well
    const std::vector<std::string> errors = network.run([&](std::size_t rank) {
      Transport& transport = *transports[rank];
      transport.connect(testing::peers_of(rank, num_ranks_), Deadline::never());
      ScheduleExecutor executor(transport);
      for (std::vector<DrawnJob>& round : rounds_) {
        if (ending_ == Ending::DEPARTURE && rank == victim_ && num_rounds[rank] == 1) {
          transports[rank].reset();
          return;
        }
        std::vector<ScheduleJob> jobs;
        for (DrawnJob& job : round) jobs.push_back(job.of_rank(rank));
        transport.begin({.kind = "drawn"});
        const bool gives_up = ending_ == Ending::DEADLINE && rank == victim_;
        executor.run(jobs,
                     gives_up ? Deadline::after(std::chrono::seconds(-1)) : Deadline::never());
        ++num_rounds[rank];
      }
    });
    Outcome result{.trace = network.trace(),
                   .num_steps = network.num_steps(),
                   .was_disturbed = ending_ != Ending::WELL,
                   .num_ranks = num_ranks_,
                   .troubles = network.violations()};
    if (!result.troubles.empty()) result.troubles.push_back(network.last_events());
    for (std::size_t rank = 0; rank < num_ranks_; ++rank) {
      check(rank, num_rounds[rank], errors[rank], result);
    }
    return result;
  }

  [[nodiscard]] std::string describe() const {
    std::string text = fmt::format("{} ranks", num_ranks_);
    for (const std::vector<DrawnJob>& round : rounds_) {
      for (const DrawnJob& job : round) text += "; " + job.name();
    }
    return text;
  }

 private:
  std::size_t draw_num_ranks() {
    return choices_.once_in(16) ? 9 + choices_.below(8) : 2 + choices_.below(7);
  }
  void check(std::size_t rank, std::size_t num_rounds, const std::string& error, Outcome& result) {
    const bool is_whole = num_rounds == std::size(rounds_);
    if (is_whole) ++result.num_whole;
    if (ending_ == Ending::WELL && !error.empty()) {
      result.troubles.push_back(fmt::format("rank {}: {}", rank, error));
    }
    // Whoever did not come to its end has an error that says why, but for the one that left.
    const bool has_left = ending_ == Ending::DEPARTURE && rank == victim_;
    if (!is_whole && error.empty() && !has_left) {
      result.troubles.push_back(fmt::format("rank {} ends early without an error", rank));
    }
    for (std::size_t round = 0; round < std::size(rounds_); ++round) {
      for (const DrawnJob& job : rounds_[round]) {
        // Once a later round has begun nothing of this one is touched any more.
        const std::string trouble = job.trouble(rank, round < num_rounds);
        if (!trouble.empty()) result.troubles.push_back(trouble);
      }
    }
  }

  Choices choices_;
  std::size_t num_ranks_;
  Ending ending_;
  std::vector<DrawnJob> rounds_[2];
  std::size_t victim_ = 0;
};

std::string report(std::uint64_t seed, const Group& group, const Outcome& outcome) {
  std::string text = fmt::format("seed {}: {}\n", seed, group.describe());
  for (const std::string& trouble : outcome.troubles) text += trouble + '\n';
  return text;
}

TEST(Interleavings, EveryOrderOfEventsGivesTheResult) {
  const testing::SeedRange seeds = testing::seeds(kUsualSeeds);
  std::set<std::uint64_t> traces;
  std::size_t num_steps = 0;
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    Group group(seed, Ending::WELL);
    const Outcome outcome = group.run();
    ASSERT_TRUE(outcome.troubles.empty()) << report(seed, group, outcome);
    ASSERT_EQ(outcome.num_whole, outcome.num_ranks) << report(seed, group, outcome);
    traces.insert(outcome.trace);
    num_steps += outcome.num_steps;
  }
  EXPECT_EQ(traces.size(), seeds.count) << "two seeds drew the same run";
  RecordProperty("seeds", static_cast<int>(seeds.count));
  RecordProperty("steps", std::to_string(num_steps));
}

TEST(Interleavings, ASeedReplaysItsRun) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    for (const Ending ending : {Ending::WELL, Ending::FAULT}) {
      const Outcome first = Group(seed, ending).run();
      const Outcome again = Group(seed, ending).run();
      EXPECT_EQ(first.trace, again.trace) << seed;
      EXPECT_EQ(first.num_steps, again.num_steps) << seed;
    }
  }
}

/// Whoever is disturbed, and whenever: all end, nobody with a wrong result.
void disturb(Ending ending) {
  const testing::SeedRange seeds = testing::seeds(kUsualSeeds / 2);
  std::size_t num_broken = 0;
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    Group group(seed, ending);
    const Outcome outcome = group.run();
    ASSERT_TRUE(outcome.troubles.empty()) << report(seed, group, outcome);
    if (outcome.num_whole < outcome.num_ranks) ++num_broken;
  }
  if (seeds.count < kEnoughSeeds) return;  // somebody looks at a few of them
  EXPECT_GT(2 * num_broken, seeds.count / 2) << "hardly a run was disturbed before its end";
}

TEST(Interleavings, AFaultAtAnyStepEndsEverybody) { disturb(Ending::FAULT); }
TEST(Interleavings, AMemberThatGivesUpEndsEverybody) { disturb(Ending::DEADLINE); }
TEST(Interleavings, AMemberThatLeavesEndsWhoWaitsForIt) { disturb(Ending::DEPARTURE); }

}  // namespace
}  // namespace crossdevice
