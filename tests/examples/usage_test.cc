// SPDX-License-Identifier: Apache-2.0
// The programs of the usage guide that need one process and no GPU, as people will write them, with their results checked.
#include <iostream>
#include <numeric>
#include <sstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/crossdevice.h"

namespace cd = crossdevice;
using cd::ReduceOp;

namespace {

std::vector<float> elements(const cd::Tensor& tensor) {
  const auto span = tensor.span<const float>();
  return {span.begin(), span.end()};
}

std::vector<float> constant(std::size_t count, float value) {
  return std::vector<float>(count, value);
}

// 1. Reduce the caller's own memory
TEST(Usage, ReducesTheCallersOwnMemory) {
  std::vector<float> a(1000, 1.0f), b(1000, 2.0f);
  cd::PerReplica grads{cd::Tensor::view(std::span(a), "CPU:0"),
                       cd::Tensor::view(std::span(b), "CPU:1")};

  cd::ReductionToOneDevice ops;
  cd::Mirrored sum = ops.reduce(ReduceOp::SUM, grads, /*destinations=*/grads);
  float x = sum.values()[1].span<float>()[0];
  EXPECT_EQ(x, 3.0f);
  EXPECT_EQ(elements(sum.values()[0]), constant(1000, 3.0f));
  EXPECT_EQ(elements(sum.values()[1]), constant(1000, 3.0f));
  EXPECT_EQ(sum.values()[0].device(), cd::Device("CPU:0"));
  EXPECT_EQ(sum.values()[1].device(), cd::Device("CPU:1"));
  EXPECT_EQ(a, constant(1000, 1.0f)) << "out of place must not write its inputs";

  cd::Mirrored mean = ops.reduce(ReduceOp::MEAN, grads, "CPU:0");
  EXPECT_EQ(elements(mean.tensor()), constant(1000, 1.5f));

  ops.reduce_into(ReduceOp::SUM, grads, grads);
  EXPECT_EQ(a, constant(1000, 3.0f));
  EXPECT_EQ(b, constant(1000, 3.0f));

  cd::Mirrored copies = ops.broadcast(mean.tensor(), grads);
  cd::Tensor on_one = copies.on("CPU:1");
  EXPECT_EQ(elements(on_one), constant(1000, 1.5f));

  b.assign(1000, 4.0f);
  cd::Mirrored rows = ops.gather(grads, "CPU:0", /*axis=*/0);
  std::vector<float> expected = constant(1000, 3.0f);
  expected.insert(expected.end(), 1000, 4.0f);
  EXPECT_EQ(elements(rows.tensor()), expected);
}

/// Gradients of three layers on two devices; gradient i of replica r holds 10 i + r.
class UsageOfBatches : public ::testing::Test {
 protected:
  static constexpr std::size_t kLayers = 3;

  UsageOfBatches() {
    for (std::size_t i = 0; i < kLayers; ++i) {
      for (std::size_t r = 0; r < 2; ++r) {
        storage_.push_back(constant(100 * (i + 1), static_cast<float>(10 * i + r)));
      }
    }
    for (std::size_t i = 0; i < kLayers; ++i) {
      gradients.push_back(
          cd::PerReplica{cd::Tensor::view(std::span(storage_[2 * i]), "CPU:0"),
                         cd::Tensor::view(std::span(storage_[2 * i + 1]), "CPU:1")});
    }
  }

  static float sum_of(std::size_t i) { return static_cast<float>(20 * i + 1); }
  void expect_gradients(float factor) {
    for (std::size_t i = 0; i < kLayers; ++i) {
      for (const cd::Tensor& tensor : gradients[i].values()) {
        EXPECT_EQ(elements(tensor), constant(100 * (i + 1), factor * sum_of(i)))
            << "gradient " << i;
      }
    }
  }

  std::vector<cd::PerReplica> gradients;
  cd::HierarchicalCopyAllReduce ops;

 private:
  std::vector<std::vector<float>> storage_;
};

// 3. A batch of gradients, packed, with a deadline
TEST_F(UsageOfBatches, ReducesABatchOfGradientsWithADeadline) {
  std::vector<cd::ValueDestinationPair> pairs;
  for (cd::PerReplica& g : gradients) pairs.push_back({g, g});
  std::vector<cd::Mirrored> sums =
      ops.batch_reduce(ReduceOp::SUM, pairs,
                       {.bytes_per_pack = 50 * 1024 * 1024,
                        .timeout_seconds = 120,
                        .implementation = cd::CommunicationImplementation::NCCL});
  ASSERT_EQ(sums.size(), kLayers);
  for (std::size_t i = 0; i < kLayers; ++i) {
    for (const cd::Tensor& tensor : sums[i].values()) {
      EXPECT_EQ(elements(tensor), constant(100 * (i + 1), sum_of(i)));
    }
  }
  ops.batch_reduce_into(ReduceOp::MEAN, gradients, {.bytes_per_pack = 50 << 20});
  expect_gradients(0.5f);
}

// 4. Overlap with back-propagation
TEST_F(UsageOfBatches, OverlapsReductionWithBackPropagation) {
  const std::size_t layers = kLayers;
  std::vector<std::size_t> computed, applied;
  const auto backward = [&](std::size_t layer) { computed.push_back(layer); };
  const auto apply = [&](std::size_t i) {
    EXPECT_EQ(elements(gradients[i].values()[1]), constant(100 * (i + 1), 0.5f * sum_of(i)));
    applied.push_back(i);
  };

  cd::GradientBucketer bucketer(
      ops, gradients, {.op = ReduceOp::MEAN, .communication = {.bytes_per_pack = 4 << 20}});
  for (std::size_t layer = layers; layer-- > 0;) {
    backward(layer);
    bucketer.ready(layer);
  }
  for (std::size_t i : bucketer.in_completion_order()) apply(i);
  bucketer.wait();

  EXPECT_THAT(computed, ::testing::ElementsAre(2, 1, 0));
  EXPECT_THAT(applied, ::testing::UnorderedElementsAre(0, 1, 2));
  expect_gradients(0.5f);
}

TEST_F(UsageOfBatches, ReducesABatchAsynchronously) {
  std::vector<cd::ValueDestinationPair> pairs;
  for (cd::PerReplica& g : gradients) pairs.push_back({g, g});
  std::vector<std::size_t> used;
  const auto use = [&](std::size_t i, const cd::Mirrored& value) {
    EXPECT_EQ(elements(value.on("CPU:1")), constant(100 * (i + 1), sum_of(i)));
    used.push_back(i);
  };

  auto pending = ops.batch_reduce_async(ReduceOp::SUM, pairs, {.bytes_per_pack = 4 << 20});
  for (std::size_t i : pending.in_completion_order()) use(i, pending.value(i));
  pending.wait();

  EXPECT_THAT(used, ::testing::UnorderedElementsAre(0, 1, 2));
}

// 5. A strategy with chosen cross-device ops
struct Model {
  float weight = 1.0f;
  std::vector<cd::Tensor> backward(float batch) {
    const float gradients[2] = {batch, 10 * batch};
    return {cd::Tensor::copy_of(std::span(gradients, 1), {1}, "CPU:0"),
            cd::Tensor::copy_of(std::span(gradients + 1, 1), {1}, "CPU:0")};
  }
  void apply(const std::vector<cd::Tensor>& gradients) {
    weight -= gradients[0].span<const float>()[0] + gradients[1].span<const float>()[0];
  }
  cd::Tensor loss() const {
    return cd::Tensor::copy_of(std::span(&weight, 1), cd::Shape{}, "CPU:0");
  }
};

TEST(Usage, RunsAStrategyWithChosenOps) {
  std::vector<Model> models(2);
  const std::vector<float> batches{1.0f, 3.0f};

  cd::MirroredStrategy strategy(
      {.devices = {"CPU:0", "CPU:1"}, .cross_device_ops = std::make_shared<cd::NcclAllReduce>(2)});
  cd::PerReplica losses = strategy.run([&](cd::ReplicaContext& context) {
    const std::size_t id = context.replica_id_in_sync_group();
    std::vector<cd::Tensor> grads = models[id].backward(batches[id]);
    grads = context.all_reduce(ReduceOp::MEAN, grads, {.bytes_per_pack = 50 << 20});
    models[id].apply(grads);
    return models[id].loss();
  });
  cd::Tensor loss = strategy.reduce(ReduceOp::MEAN, losses, /*axis=*/std::nullopt);

  // The mean gradients are 2 and 20 on both replicas: 1 - 22 = -21.
  EXPECT_EQ(models[0].weight, -21.0f);
  EXPECT_EQ(models[1].weight, -21.0f);
  EXPECT_EQ(elements(loss), constant(1, -21.0f));
}

// 7. TensorFlow 1.14's multi-worker ops, all workers in one process
TEST(Usage, ReducesOverAllWorkersInOneProcess) {
  cd::MultiWorkerAllReduce ops(
      {"/job:worker/task:0", "/job:worker/task:1"},
      /*num_gpus_per_worker=*/2,
      {.all_reduce_spec = {{"nccl", 2, 1024}, {"pscpu/pscpu", 2, -1}}, .num_packs = 1});
  cd::MultiWorkerAllReduce same({"/job:worker/task:0", "/job:worker/task:1"}, 2,
                                {.all_reduce_spec = "nccl#2:1k:pscpu/pscpu#2", .num_packs = 1});
  EXPECT_EQ(ops.all_reduce_spec(), same.all_reduce_spec());
  const cd::MultiWorkerAllReduce by_default({"/job:worker/task:0"}, /*num_gpus_per_worker=*/2);
  EXPECT_EQ(by_default.all_reduce_spec(), cd::AllReduceSpec("pscpu/pscpu#2"));

  const char* const devices[] = {"/job:worker/task:0/CPU:0", "/job:worker/task:0/CPU:1",
                                 "/job:worker/task:1/CPU:0", "/job:worker/task:1/CPU:1"};
  for (const std::size_t count : {std::size_t{10}, std::size_t{1000}}) {
    std::vector<cd::Tensor> components;
    for (std::size_t r = 0; r < 4; ++r) {
      const std::vector<float> elements = constant(count, static_cast<float>(r));
      components.push_back(cd::Tensor::copy_of(std::span(elements), {count}, devices[r]));
    }
    cd::PerReplica gradients(components);
    for (cd::MultiWorkerAllReduce* each : {&ops, &same}) {
      cd::Mirrored means = each->reduce(ReduceOp::MEAN, gradients, gradients);
      for (const cd::Tensor& tensor : means.values()) {
        EXPECT_EQ(elements(tensor), constant(count, 1.5f));
      }
    }
  }
}

// 9. Sparse gradients
TEST(Usage, ConcatenatesSparseGradients) {
  const float rows0[] = {1, 2, 3, 4};
  const float rows1[] = {5, 6};
  const std::int64_t index0[] = {7, 40000};
  const std::int64_t index1[] = {7};
  const cd::Tensor v0 = cd::Tensor::copy_of(std::span(rows0), {2, 2}, "CPU:0");
  const cd::Tensor i0 = cd::Tensor::copy_of(std::span(index0), {2}, "CPU:0");
  const cd::Tensor v1 = cd::Tensor::copy_of(std::span(rows1), {1, 2}, "CPU:1");
  const cd::Tensor i1 = cd::Tensor::copy_of(std::span(index1), {1}, "CPU:1");
  cd::ReductionToOneDevice ops;

  cd::IndexedSlices s0{.values = v0, .indices = i0, .dense_shape = {50000, 2}};
  cd::IndexedSlices s1{.values = v1, .indices = i1, .dense_shape = {50000, 2}};
  cd::Mirrored all = ops.reduce(ReduceOp::SUM, cd::PerReplica{s0, s1}, "CPU:0");
  const cd::IndexedSlices& merged = all.slices()[0];

  EXPECT_EQ(elements(merged.values), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  const auto indices = merged.indices.span<const std::int64_t>();
  EXPECT_THAT(std::vector<std::int64_t>(indices.begin(), indices.end()),
              ::testing::ElementsAre(7, 40000, 7));
  EXPECT_EQ(merged.dense_shape, (cd::MaybeShape{50000, 2}));
}

// 10. An op of one's own
class LoggingOps : public cd::ReductionToOneDevice {
 public:
  explicit LoggingOps(std::ostream& log) : log_(log) {}

 protected:
  cd::Mirrored reduce_implementation(ReduceOp op, const cd::PerReplica& value,
                                     const cd::Destinations& destinations,
                                     const cd::CommunicationOptions& options) override {
    log_ << "reduce " << value.shape() << " over " << value.size() << " replicas\n";
    return cd::ReductionToOneDevice::reduce_implementation(op, value, destinations, options);
  }

 private:
  std::ostream& log_;
};

TEST_F(UsageOfBatches, LetsAnOverriddenHookSeeEveryForm) {
  std::ostringstream log;
  LoggingOps logging(log);
  const auto seen = [&log] {
    std::string text = log.str();
    log.str("");
    return text;
  };
  const std::string one = "reduce (100) over 2 replicas\n";
  const std::string three = one + "reduce (200) over 2 replicas\nreduce (300) over 2 replicas\n";
  std::vector<cd::ValueDestinationPair> pairs;
  for (cd::PerReplica& g : gradients) pairs.push_back({g, g});

  (void)logging.reduce(ReduceOp::SUM, gradients[0], gradients[0]);
  EXPECT_EQ(seen(), one);
  (void)logging.batch_reduce(ReduceOp::SUM, pairs);
  EXPECT_EQ(seen(), three);
  logging.reduce_async(ReduceOp::SUM, gradients[0], gradients[0]).wait();
  EXPECT_EQ(seen(), one);
  logging.batch_reduce_async(ReduceOp::SUM, pairs).wait();
  EXPECT_EQ(seen(), three);
  logging.batch_reduce_into(ReduceOp::SUM, gradients);
  EXPECT_EQ(seen(), three);
  expect_gradients(1.0f);
}

cd::Tensor my_sum(std::span<const cd::Tensor> parts) {
  cd::Tensor sum = cd::Tensor::zeros(parts[0].dtype(), parts[0].shape(), parts[0].device());
  for (const cd::Tensor& part : parts) {
    for (std::size_t i = 0; i < part.num_elements(); ++i) {
      sum.span<float>()[i] += 2 * part.span<const float>()[i];
    }
  }
  return sum;
}

TEST_F(UsageOfBatches, SumsWithTheCallersFunction) {
  cd::ReductionToOneDevice weighted(
      {.reduce_to_device = "CPU:0",
       .accumulation_fn = [](std::span<const cd::Tensor> parts) { return my_sum(parts); }});
  const cd::Mirrored sum = weighted.reduce(ReduceOp::SUM, gradients[1], gradients[1]);
  for (const cd::Tensor& tensor : sum.values()) {
    EXPECT_EQ(elements(tensor), constant(200, 2 * sum_of(1)));
  }
  const std::vector<cd::Mirrored> sums =
      weighted.batch_reduce(ReduceOp::SUM, {{gradients[1], gradients[1]}, {gradients[1], "CPU:0"}});
  ASSERT_EQ(sums.size(), 2U);
  for (const cd::Mirrored& each : sums) {
    for (const cd::Tensor& tensor : each.values()) {
      EXPECT_EQ(elements(tensor), constant(200, 2 * sum_of(1)));
    }
  }
}

// 11. When it goes wrong
TEST(Usage, SaysWhatWasWrong) {
  std::vector<float> a(1000), b(999);
  const std::vector<cd::PerReplica> gradients{
      {cd::Tensor::view(std::span(a), "CPU:0"), cd::Tensor::view(std::span(b), "CPU:1")}};
  cd::ReductionToOneDevice ops;
  std::string what;
  try {
    ops.batch_reduce_into(ReduceOp::SUM, gradients, {.timeout_seconds = 5});
  } catch (const cd::DeadlineExceededError& error) {
    for (const cd::RankInfo& rank : error.culprits()) std::cerr << rank << '\n';
  } catch (const cd::ValueError& error) {
    what = error.what();
  }
  EXPECT_EQ(what, "gradients differ: replica 0 float32 (1000), replica 1 float32 (999)");
}

}  // namespace
