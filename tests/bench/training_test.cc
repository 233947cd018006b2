// SPDX-License-Identifier: Apache-2.0
/// Tests of train/training.h on a small data set: learning, equal replicas, determinism, independence of the number of replicas.
#include "train/training.h"

#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bench/small_data_set.h"
#include "support/program.h"

namespace crossdevice::train {
namespace {

class TrainingTest : public testing::Test {
 protected:
  TrainingTest() {
    const TemporaryDirectory directory;
    write_small_data_set(directory.path(), {.num_train = 500, .num_test = 200});
    data_ = read_data_set(directory.path());
  }

  [[nodiscard]] static TrainingOptions options(int num_replicas) {
    TrainingOptions options;
    std::vector<Device> devices;
    for (int r = 0; r < num_replicas; ++r) devices.emplace_back("CPU:" + std::to_string(r));
    options.devices = Devices(std::span<const Device>(devices));
    options.hidden_widths = {20};
    options.epochs = 2;
    options.rate = 0.1F;
    options.batch_size = 64;  // 500 images: the last batch of an epoch is smaller
    options.bytes_per_pack = 100;
    options.deterministic = true;
    return options;
  }

  std::vector<float> trained(const TrainingOptions& options) {
    Training training(data_, options);
    for (std::size_t epoch = 0; epoch < options.epochs; ++epoch) {
      (void)training.run_epoch(epoch, [](std::size_t, std::size_t, double) {});
    }
    const std::vector<float> first = training.weights(0);
    for (std::size_t r = 1; r < training.num_replicas(); ++r) {
      EXPECT_EQ(checksum(training.weights(r)), checksum(first)) << "replica " << r;
    }
    return first;
  }

  DataSet data_;
};

TEST_F(TrainingTest, LearnsTheClasses) {
  TrainingOptions o = options(4);
  o.epochs = 10;
  Training training(data_, o);
  EXPECT_LT(training.test_accuracy(), 0.4);
  double last_loss = 0;
  std::size_t steps_seen = 0;
  for (std::size_t epoch = 0; epoch < o.epochs; ++epoch) {
    last_loss = training.run_epoch(epoch, [&](std::size_t, std::size_t, double) { ++steps_seen; })
                    .mean_loss;
  }
  EXPECT_EQ(steps_seen, 10U * 8);
  EXPECT_LT(last_loss, 0.3);
  EXPECT_GT(training.test_accuracy(), 0.9);
}

TEST_F(TrainingTest, TwoRunsEndWithTheSameBits) {
  EXPECT_EQ(checksum(trained(options(4))), checksum(trained(options(4))));
}

TEST_F(TrainingTest, BitsDoNotDependOnPackingOrOps) {
  const std::uint64_t expected = checksum(trained(options(4)));
  TrainingOptions one_pack = options(4);
  one_pack.bytes_per_pack = 1 << 30;
  EXPECT_EQ(checksum(trained(one_pack)), expected);
  TrainingOptions other_ops = options(4);
  other_ops.cross_device_ops = "hierarchical_copy";
  EXPECT_EQ(checksum(trained(other_ops)), expected);
  other_ops.cross_device_ops = "multi_worker";
  EXPECT_EQ(checksum(trained(other_ops)), expected);
}

TEST_F(TrainingTest, SeveralReplicasReachTheWeightsOfOneToRounding) {
  const std::vector<float> one = trained(options(1));
  for (const int n : {2, 3, 4, 5}) {
    const std::vector<float> several = trained(options(n));
    ASSERT_EQ(several.size(), one.size());
    float largest_difference = 0;
    for (std::size_t i = 0; i < one.size(); ++i) {
      largest_difference = std::max(largest_difference, std::abs(one[i] - several[i]));
    }
    EXPECT_LT(largest_difference, 1e-4F) << n << " replicas";  // weights are of the order of 1
  }
}

TEST_F(TrainingTest, AnotherSeedGivesOtherWeights) {
  TrainingOptions other = options(2);
  other.seed = 7;
  EXPECT_NE(checksum(trained(other)), checksum(trained(options(2))));
}

TEST_F(TrainingTest, MoreReplicasThanImagesInABatchWork) {
  TrainingOptions small = options(5);
  small.batch_size = 3;
  small.epochs = 1;
  TrainingOptions alone = small;
  alone.devices = Devices{"CPU:0"};
  const std::vector<float> several = trained(small);
  const std::vector<float> one = trained(alone);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(several[i], one[i], 1e-3F);
}

TEST_F(TrainingTest, TheSplitOfTimeIsConsistent) {
  TrainingOptions o = options(4);
  Training training(data_, o);
  const EpochResult result = training.run_epoch(0, [](std::size_t, std::size_t, double) {});
  EXPECT_GT(result.time.compute, 0);
  EXPECT_GT(result.time.communication, 0);
  EXPECT_LE(result.time.hidden, result.time.communication);
}

TEST_F(TrainingTest, PacksCoverEveryGradient) {
  const Training training(data_, options(2));
  std::size_t size_bytes = 0;
  for (const std::size_t pack : training.pack_sizes_bytes()) size_bytes += pack;
  EXPECT_EQ(size_bytes, training.weights(0).size() * sizeof(float));
  EXPECT_GT(training.pack_sizes_bytes().size(), 1U);
}

TEST_F(TrainingTest, ABatchLargerThanTheDataSetIsTheDataSet) {
  TrainingOptions whole = options(3);
  whole.batch_size = data_.train.size();
  const std::uint64_t expected = checksum(trained(whole));
  for (const std::size_t batch_size :
       {std::size_t{501}, std::size_t{1} << 50U, std::numeric_limits<std::size_t>::max()}) {
    TrainingOptions larger = whole;
    larger.batch_size = batch_size;
    EXPECT_EQ(checksum(trained(larger)), expected) << batch_size;
  }
}

TEST_F(TrainingTest, GoesOnFromAStateToTheSameBits) {
  struct Enough {};
  const TrainingOptions o = options(3);
  TrainingState state;
  {
    Training training(data_, o);
    (void)training.run_epoch(0, [](std::size_t, std::size_t, double) {});
    EXPECT_THROW((void)training.run_epoch(1,
                                          [](std::size_t done, std::size_t, double) {
                                            if (done == 3) throw Enough();
                                          }),
                 Enough);
    state = training.state();
  }
  EXPECT_EQ(state.epoch, 1U);
  EXPECT_EQ(state.step, 3U);
  EXPECT_EQ(state.num_examples, 3U * 64);
  Training training(data_, o);
  training.restore(state);
  std::size_t steps_seen = 0;
  (void)training.run_epoch(1, [&](std::size_t, std::size_t, double) { ++steps_seen; });
  EXPECT_EQ(steps_seen, 5U);
  EXPECT_EQ(checksum(training.weights(2)), checksum(trained(o)));
  state.replica.pop_back();
  EXPECT_THROW(training.restore(state), std::invalid_argument);
}

TEST_F(TrainingTest, RefusesABatchOfNothing) {
  TrainingOptions o = options(2);
  o.batch_size = 0;
  EXPECT_THROW(Training(data_, o), programs::ArgumentError);
}

TEST(ChecksumTest, DependsOnEveryBit) {
  const std::vector<float> weights = {1.0F, -0.0F, 3.5F};
  EXPECT_NE(checksum(weights), checksum(std::vector<float>{1.0F, 0.0F, 3.5F}));
  EXPECT_NE(checksum(weights), checksum(std::vector<float>{-0.0F, 1.0F, 3.5F}));
  EXPECT_EQ(checksum(weights), checksum(std::vector<float>{1.0F, -0.0F, 3.5F}));
}

}  // namespace
}  // namespace crossdevice::train
