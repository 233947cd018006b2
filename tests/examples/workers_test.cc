// SPDX-License-Identifier: Apache-2.0
// The programs for several workers, as users write them, with processes.
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <crossdevice/crossdevice.h>

#include "support/worker_processes.h"

namespace cd = crossdevice;
using cd::ReduceOp;
using crossdevice::testing::all_well;
using crossdevice::testing::await_the_others;
using crossdevice::testing::run_workers;

namespace {

/// The replicas of all workers train one number: three steps towards the mean of their targets.
void train(cd::ReplicaContext& context, cd::DistributedVariable& weight) {
  for (int step = 0; step < 3; ++step) {
    const auto target = static_cast<float>(context.replica_id_in_sync_group());
    cd::Tensor gradient = cd::Tensor::empty(cd::DType::FLOAT32, {}, context.device());
    gradient.span<float>()[0] = weight.read().span<const float>()[0] - target;
    gradient = context.all_reduce(ReduceOp::MEAN, gradient);
    gradient.span<float>()[0] *= 0.5F;
    weight.assign_sub(gradient);
  }
}

/// Several workers, one line to meet.
void program_6() {
  // The same program under crossdevice-run, TF_CONFIG, torchrun, mpirun or srun.
  cd::MultiWorkerMirroredStrategy strategy(
      {.communication_options = {.timeout_seconds = 30,
                                 .implementation = cd::CommunicationImplementation::AUTO}});
  const auto weight =
      strategy.make_variable(cd::Tensor::zeros(cd::DType::FLOAT32, {}, "CPU:0"),
                             {.name = "weight", .aggregation = cd::VariableAggregation::MEAN});
  strategy.run([&](cd::ReplicaContext& context) { train(context, *weight); });
  EXPECT_EQ(strategy.num_replicas_in_sync(), 3U);  // every worker's devices
  EXPECT_EQ(weight->read().span<const float>()[0], 0.875F);
}

/// Every worker reduces a gradient of its own, without a strategy.
int program_8(cd::Cluster& joined) {
  std::shared_ptr<cd::Cluster> cluster(&joined, [](cd::Cluster*) {});
  cd::CollectiveAllReduce ops({"CPU:0"}, /*group_size=*/cluster->num_workers(),
                              {.bytes_per_pack = 1 << 20}, cluster);
  cd::Tensor gradient = cd::Tensor::empty(cd::DType::FLOAT32, {1 << 20}, "CPU:0");
  for (float& element : gradient.span<float>()) element = static_cast<float>(cluster->rank() + 1);
  cd::PerReplica value{gradient};
  ops.reduce_into(ReduceOp::SUM, value, value);
  cluster->barrier();
  for (const float element : gradient.span<float>()) {
    if (element != 6.0F) return 1;
  }
  std::shared_ptr<cd::Cluster> half = cluster->subgroup({0, 2});  // null on rank 1
  if (half == nullptr) return cluster->rank() == 1 ? 0 : 3;
  half->barrier();
  return half->num_workers() == 2 ? 0 : 2;
}

/// The floor below the ops.
int program_13(cd::Cluster& joined) {
  std::shared_ptr<cd::Cluster> cluster(&joined, [](cd::Cluster*) {});
  std::vector<float> a(3000, static_cast<float>(cluster->rank() + 1));
  std::vector<float> shard(1000);
  cd::Communicator world(cluster);
  world.reduce_scatter(ReduceOp::SUM, cd::Tensor::view(std::span(a), "CPU:0"),
                       cd::Tensor::view(std::span(shard), "CPU:0"));
  world.all_gather(cd::Tensor::view(std::span(shard), "CPU:0"),
                   cd::Tensor::view(std::span(a), "CPU:0"));
  return a == std::vector<float>(3000, 6.0F) ? 0 : 1;
}

bool says(const cd::OpError& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

/// Until this worker hears that the others have gone on; before, perhaps, that they miss it.
int do_something_else(cd::Cluster& cluster) {
  for (;;) {
    try {
      cluster.barrier();
      return 2;
    } catch (const cd::AbortedError& error) {
      if (says(error, "epoch 2 has begun with 2 of 3 workers")) return 0;
      if (!says(error, "called rebuild(ONLY")) return 1;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

/// Who does not come is named, and the others go on without it.
int program_11(cd::Cluster& joined) {
  std::shared_ptr<cd::Cluster> cluster(&joined, [](cd::Cluster*) {});
  cd::CollectiveAllReduce ops({"CPU:0"}, cluster->num_workers(), {}, cluster);
  cd::PerReplica gradient{cd::Tensor::zeros(cd::DType::FLOAT32, {1000}, "CPU:0")};
  const std::span<const cd::PerReplica> gradients(&gradient, 1);
  ops.batch_reduce_into(ReduceOp::SUM, gradients);
  if (cluster->rank() == 1) return do_something_else(*cluster);
  try {
    ops.batch_reduce_into(ReduceOp::SUM, gradients, {.timeout_seconds = 6});
    return 6;
  } catch (const cd::DeadlineExceededError& error) {
    if (error.culprits().size() != 1 || error.culprits()[0].rank != 1) return 3;
  } catch (const cd::AbortedError& error) {
    // On a busy machine the other survivor misses this one in rebuild().
    if (!says(error, "called rebuild(ONLY")) return 7;
  }
  // Needs a majority unless told otherwise; says which operation completed everywhere.
  cd::Rebuilt rebuilt = cluster->rebuild(cd::Survivors::ONLY, {.patience_seconds = 0.2});
  if (rebuilt.last_completed.sequence != 1 || rebuilt.left_out.size() != 1) return 4;
  // Old ops objects are broken; make new ones, send weights from one survivor, go on.
  cluster = rebuilt.cluster;
  cd::CollectiveAllReduce new_ops({"CPU:0"}, cluster->num_workers(), {}, cluster);
  new_ops.batch_reduce_into(ReduceOp::SUM, gradients);
  await_the_others();  // the one that was left out is to hear of it from those who live
  return cluster->num_workers() == 2 ? 0 : 5;
}

TEST(UsageTest, Program6) { EXPECT_EQ(run_workers("program 6", 3), all_well(3)); }
TEST(UsageTest, Program8) { EXPECT_EQ(run_workers("program 8", 3), all_well(3)); }
TEST(UsageTest, Program11) { EXPECT_EQ(run_workers("program 11", 3), all_well(3)); }
TEST(UsageTest, Program13) { EXPECT_EQ(run_workers("program 13", 3), all_well(3)); }
TEST(UsageTest, OnSeveralMachines) {
  for (const char* const program : {"program 6", "program 8", "program 11", "program 13"}) {
    EXPECT_EQ(run_workers(program, 3, -1, crossdevice::testing::Machines::ONE_EACH), all_well(3))
        << program;
  }
}

}  // namespace

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(argc, argv,
                                           {{"program 6", program_6},
                                            {"program 8", program_8},
                                            {"program 11", program_11},
                                            {"program 13", program_13}});
}
