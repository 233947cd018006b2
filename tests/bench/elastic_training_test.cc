// SPDX-License-Identifier: Apache-2.0
/// Training that outlives workers, with processes: the weights are those of an undisturbed training, but for rounding.
#include "train/elastic_training.h"

#include <csignal>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "bench/small_data_set.h"
#include "support/machines_fixture.h"
#include "support/worker_processes.h"

namespace crossdevice::train {
namespace {

using crossdevice::testing::all_well;
using crossdevice::testing::Machines;
using crossdevice::testing::run_workers;

/// The same on every worker: the generator of the images is seeded.
DataSet small_data() {
  const TemporaryDirectory directory;
  write_small_data_set(directory.path(), {.num_train = 500, .num_test = 200});
  return read_data_set(directory.path());
}

TrainingOptions options() {
  TrainingOptions options;
  options.devices = Devices{"CPU:0"};
  options.hidden_widths = {20};
  options.epochs = 3;
  options.rate = 0.1F;
  options.batch_size = 64;  // 8 steps
  options.bytes_per_pack = 100;
  return options;
}

/// Called after every step.
using OnStep = std::function<void(std::size_t epoch, std::size_t step)>;

struct Outcome {
  std::vector<float> weights;
  std::vector<std::uint64_t> checksums;
  std::size_t num_recoveries = 0;
};

Outcome train(const DataSet& data, const TrainingOptions& options, ElasticOptions elastic,
              const OnStep& on_step) {
  Outcome outcome;
  elastic.on_recovery = [&](const Training&, const std::string&) { ++outcome.num_recoveries; };
  ElasticTraining training(data, options, elastic);
  training.run([&](Training& made) {
    for (std::size_t epoch = made.epoch(); epoch < options.epochs; ++epoch) {
      (void)made.run_epoch(epoch,
                           [&](std::size_t step, std::size_t, double) { on_step(epoch, step); });
      (void)made.test_accuracy();
    }
    outcome.weights = made.weights(0);
    outcome.checksums = made.checksums();
  });
  return outcome;
}

void expect_undisturbed(const DataSet& data, const Outcome& outcome, std::size_t num_left) {
  EXPECT_EQ(outcome.checksums, std::vector<std::uint64_t>(num_left, checksum(outcome.weights)));
  const Outcome undisturbed = train(data, options(), {}, [](std::size_t, std::size_t) {});
  ASSERT_EQ(outcome.weights.size(), undisturbed.weights.size());
  for (std::size_t i = 0; i < outcome.weights.size(); ++i) {
    ASSERT_NEAR(outcome.weights[i], undisturbed.weights[i], 2e-4F);
  }
}

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  std::abort();  // not reached
}

ElasticOptions go_on(int min_workers = 0) {
  return {.when_one_fails = WhenAWorkerFails::GO_ON, .min_workers = min_workers};
}

TrainingOptions with(Cluster& cluster) {
  TrainingOptions together = options();
  together.cluster = testing::shared(cluster);
  return together;
}

/// `victim` ends itself in the second epoch.
auto one_dies(int victim) {
  return [victim](Cluster& cluster) {
    const DataSet data = small_data();
    const Outcome outcome =
        train(data, with(cluster), go_on(), [&](std::size_t epoch, std::size_t step) {
          if (cluster.rank() == victim && epoch == 1 && step == 3) die();
        });
    EXPECT_EQ(outcome.num_recoveries, 1U);
    expect_undisturbed(data, outcome, static_cast<std::size_t>(cluster.num_workers()) - 1);
  };
}

/// Rank 0 ends rank 1 wherever that may be at that moment, each time another.
void one_is_killed(Cluster& cluster) {
  const DataSet data = small_data();
  const std::vector<std::string> pids = cluster.all_gather_bytes(std::to_string(::getpid()));
  const Outcome outcome =
      train(data, with(cluster), go_on(), [&](std::size_t epoch, std::size_t step) {
        if (cluster.rank() == 0 && epoch == 0 && step == 5) ::kill(std::stoi(pids[1]), SIGKILL);
      });
  expect_undisturbed(data, outcome, 2);
}

/// The chief first, then another; also while the others' recovery may still be under way.
void two_die(Cluster& cluster) {
  const DataSet data = small_data();
  const Outcome outcome =
      train(data, with(cluster), go_on(), [&](std::size_t epoch, std::size_t step) {
        if (cluster.rank() == 0 && epoch == 0 && step == 7) die();
        if (cluster.rank() == 2 && epoch == 0 && step == 8) die();
      });
  EXPECT_GE(outcome.num_recoveries, 1U);
  expect_undisturbed(data, outcome, 3);
}

void one_dies_before_the_first_step(Cluster& cluster) {
  if (cluster.rank() == 1) die();
  const DataSet data = small_data();
  const Outcome outcome = train(data, with(cluster), go_on(), [](std::size_t, std::size_t) {});
  expect_undisturbed(data, outcome, 2);
}

/// One of two is no majority.
void too_few(Cluster& cluster) {
  const DataSet data = small_data();
  const auto dies = [&](std::size_t, std::size_t step) {
    if (cluster.rank() == 1 && step == 2) die();
  };
  EXPECT_THROW((void)train(data, with(cluster), go_on(), dies), UnavailableError);
}

void few_are_enough(Cluster& cluster) {
  const DataSet data = small_data();
  const Outcome outcome =
      train(data, with(cluster), go_on(1), [&](std::size_t epoch, std::size_t step) {
        if (cluster.rank() == 1 && epoch == 2 && step == 2) die();
      });
  expect_undisturbed(data, outcome, 1);
}

void not_elastic(Cluster& cluster) {
  const DataSet data = small_data();
  const auto dies = [&](std::size_t, std::size_t step) {
    if (cluster.rank() == 1 && step == 2) die();
  };
  EXPECT_THROW((void)train(data, with(cluster), {}, dies), UnavailableError);
}

/// What is wrong in the program itself is not survived.
TEST(ElasticTrainingTestAlone, ErrorsOfOnesOwnPass) {
  const DataSet data = small_data();
  struct Own {};
  EXPECT_THROW((void)train(data, options(), go_on(), [](std::size_t, std::size_t) { throw Own(); }),
               Own);
  EXPECT_THROW((void)train(data, options(), go_on(),
                           [](std::size_t, std::size_t) { throw UnavailableError("alone"); }),
               UnavailableError);
}

std::vector<int> without(std::vector<int> dead, int num_workers) {
  std::vector<int> expected = all_well(num_workers);
  for (const int rank : dead) expected[static_cast<std::size_t>(rank)] = -SIGKILL;
  return expected;
}

class ElasticTrainingTest : public testing::MachinesTest {};
INSTANTIATE_TEST_SUITE_P(Workers, ElasticTrainingTest,
                         ::testing::Values(Machines::ONE, Machines::ONE_EACH),
                         testing::machines_name);

TEST_P(ElasticTrainingTest, TheOthersGoOnWhenAWorkerDies) {
  EXPECT_EQ(run("1 dies", 3), without({1}, 3));
  EXPECT_EQ(run("1 dies", 5), without({1}, 5));
}

TEST_P(ElasticTrainingTest, TheOthersGoOnWhenTheChiefDies) {
  EXPECT_EQ(run("0 dies", 3), without({0}, 3));
  EXPECT_EQ(run("0 dies", 4), without({0}, 4));
}

TEST_P(ElasticTrainingTest, AnyMomentWillDo) {
  for (int i = 0; i < 5; ++i) EXPECT_EQ(run("killed", 3), without({1}, 3));
}

TEST_P(ElasticTrainingTest, TwoDeaths) { EXPECT_EQ(run("two die", 5), without({0, 2}, 5)); }

TEST_P(ElasticTrainingTest, ADeathBeforeTheFirstStep) {
  EXPECT_EQ(run("at start", 3), without({1}, 3));
}

TEST_P(ElasticTrainingTest, FewerThanHalfGoOnOnlyWhenTheyMay) {
  EXPECT_EQ(run("too few", 2), without({1}, 2));
  EXPECT_EQ(run("few", 2), without({1}, 2));
}

TEST_P(ElasticTrainingTest, NobodyGoesOnUnlessAsked) {
  EXPECT_EQ(run("not elastic", 3), without({1}, 3));
}

}  // namespace
}  // namespace crossdevice::train

int main(int argc, char** argv) {
  using namespace crossdevice::train;  // NOLINT(google-build-using-namespace): the test's own
  return crossdevice::testing::worker_main(argc, argv,
                                           {{"1 dies", one_dies(1)},
                                            {"0 dies", one_dies(0)},
                                            {"killed", one_is_killed},
                                            {"two die", two_die},
                                            {"at start", one_dies_before_the_first_step},
                                            {"too few", too_few},
                                            {"few", few_are_enough},
                                            {"not elastic", not_elastic}});
}
