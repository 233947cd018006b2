// SPDX-License-Identifier: Apache-2.0
/// Training on several workers, with processes: they reach the weights of one process; with one replica each and the same number of replicas, to the bit.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bench/small_data_set.h"
#include "support/machines_fixture.h"
#include "support/program.h"
#include "support/worker_processes.h"
#include "train/training.h"

namespace crossdevice::train {
namespace {

using crossdevice::testing::all_well;
using crossdevice::testing::Machines;
using crossdevice::testing::run_workers;

/// The same on every worker: the generator of the images is seeded.
DataSet small_data() {
  const TemporaryDirectory directory;
  write_small_data_set(directory.path(), {.num_train = 500, .num_test = 203});
  return read_data_set(directory.path());
}

TrainingOptions options(std::size_t num_devices) {
  TrainingOptions options;
  std::vector<Device> devices;
  devices.reserve(num_devices);
  for (std::size_t d = 0; d < num_devices; ++d) devices.emplace_back("CPU:" + std::to_string(d));
  options.devices = Devices(std::span<const Device>(devices));
  options.hidden_widths = {20};
  options.epochs = 2;
  options.rate = 0.1F;
  options.batch_size = 64;  // 500 images: the last batch of an epoch is smaller
  options.bytes_per_pack = 100;
  options.deterministic = true;
  return options;
}

struct Trained {
  std::vector<float> weights;
  std::vector<std::uint64_t> checksums;
  std::vector<double> losses;
  double accuracy = 0;
};

Trained train(const DataSet& data, const TrainingOptions& options) {
  Training training(data, options);
  Trained result;
  for (std::size_t epoch = 0; epoch < options.epochs; ++epoch) {
    result.losses.push_back(
        training.run_epoch(epoch, [](std::size_t, std::size_t, double) {}).mean_loss);
  }
  result.accuracy = training.test_accuracy();
  result.weights = training.weights(0);
  result.checksums = training.checksums();
  return result;
}

void reaches_the_weights_of_one_process(Cluster& joined) {
  const std::shared_ptr<Cluster> cluster(&joined, [](Cluster*) {});
  const DataSet data = small_data();
  for (const std::size_t devices : {1U, 2U}) {
    for (const std::size_t batch_size : {64U, 3U}) {  // the second leaves replicas without an image
      TrainingOptions together = options(devices);
      together.batch_size = batch_size;
      together.epochs = batch_size == 3 ? 1 : 2;
      TrainingOptions alone = together;
      const std::size_t replicas = devices * static_cast<std::size_t>(cluster->num_workers());
      alone.devices = options(replicas).devices;
      TrainingOptions single = together;
      single.devices = options(1).devices;
      together.cluster = cluster;

      const Trained here = train(data, together);
      const Trained there = train(data, alone);
      const Trained reference = train(data, single);
      EXPECT_EQ(here.checksums, std::vector<std::uint64_t>(replicas, checksum(here.weights)));
      if (devices == 1) {  // else a worker's replicas are summed first
        EXPECT_EQ(checksum(here.weights), checksum(there.weights));
      }
      for (std::size_t epoch = 0; epoch < here.losses.size(); ++epoch) {
        EXPECT_NEAR(here.losses[epoch], there.losses[epoch], 1e-4);
      }
      EXPECT_NEAR(here.accuracy, there.accuracy, 0.011);  // two of 203
      ASSERT_EQ(here.weights.size(), reference.weights.size());
      for (std::size_t i = 0; i < here.weights.size(); ++i) {
        ASSERT_NEAR(here.weights[i], reference.weights[i], batch_size == 3 ? 1e-3F : 1e-4F);
      }
    }
  }
}

/// Rank 1 of three leaves in the middle of an epoch. Rank 0 knows less than rank 2, whose state it takes.
void goes_on_with_those_who_are_left(Cluster& joined) {
  const std::shared_ptr<Cluster> cluster(&joined, [](Cluster*) {});
  const DataSet data = small_data();
  TrainingOptions o = options(2);
  o.cluster = cluster;
  struct Enough {};
  TrainingState state;
  {
    Training training(data, o);
    (void)training.run_epoch(0, [](std::size_t, std::size_t, double) {});
    const auto stop = [&](std::size_t done, std::size_t, double) {
      if (done == 4 && cluster->rank() == 0) state = training.state();
      if (done == 5) throw Enough();
    };
    EXPECT_THROW((void)training.run_epoch(1, stop), Enough);
    if (cluster->rank() != 0) state = training.state();
    EXPECT_EQ(state.epoch, 1U);
    EXPECT_EQ(state.step, cluster->rank() == 0 ? 4U : 5U);
  }
  if (cluster->rank() != 1) {
    o.cluster = cluster->subgroup({0, 2});
    Training training(data, o);
    training.restore(state);
    EXPECT_EQ(training.epoch(), 1U);
    std::size_t first_step = 0;
    const EpochResult result = training.run_epoch(1, [&](std::size_t done, std::size_t, double) {
      if (first_step == 0) first_step = done;
    });
    EXPECT_EQ(first_step, 6U);
    EXPECT_GT(result.mean_loss, 0);
    const Trained undisturbed = train(data, options(1));
    const std::vector<float> weights = training.weights(0);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      ASSERT_NEAR(weights[i], undisturbed.weights[i], 1e-4F);
    }
    EXPECT_EQ(training.checksums(), std::vector<std::uint64_t>(4, checksum(weights)));
  }
  cluster->barrier();
}

void takes_no_ops_of_one_process(Cluster& joined) {
  const DataSet data = small_data();
  TrainingOptions o = options(2);
  o.cluster = std::shared_ptr<Cluster>(&joined, [](Cluster*) {});
  o.cross_device_ops = "hierarchical_copy";
  EXPECT_THROW(Training(data, o), programs::ArgumentError);
}

class TrainingWorkersTest : public testing::MachinesTest {};
INSTANTIATE_TEST_SUITE_P(Workers, TrainingWorkersTest,
                         ::testing::Values(Machines::ONE, Machines::ONE_EACH),
                         testing::machines_name);

TEST_P(TrainingWorkersTest, ReachTheWeightsOfOneProcess) {
  for (const int n : {1, 2, 3, 4}) EXPECT_EQ(run("train", n), all_well(n));
}

TEST_P(TrainingWorkersTest, GoOnFromTheStateOfTheOneThatKnowsMost) {
  EXPECT_EQ(run("go on", 3), all_well(3));
}

TEST_P(TrainingWorkersTest, OpsOfOneProcessAreRefused) { EXPECT_EQ(run("ops", 2), all_well(2)); }

}  // namespace
}  // namespace crossdevice::train

int main(int argc, char** argv) {
  using namespace crossdevice::train;  // NOLINT(google-build-using-namespace): the test's own
  return crossdevice::testing::worker_main(argc, argv,
                                           {{"train", reaches_the_weights_of_one_process},
                                            {"go on", goes_on_with_those_who_are_left},
                                            {"ops", takes_no_ops_of_one_process}});
}
