// SPDX-License-Identifier: Apache-2.0
// A job that outlives a worker: crossdevice-run -n 3 --keep-going -- ./elastic. The last one dies in step 5, the others go on without it.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

#include <crossdevice/crossdevice.h>

namespace cd = crossdevice;

namespace {

constexpr std::int64_t kSteps = 10;
constexpr float kLearningRate = 0.01F;

/// What every worker must have in the end: in step s all gradients are s + 1, and so is their mean.
bool is_trained(const std::vector<float>& weights) {
  float expected = 1;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    expected -= kLearningRate * static_cast<float>(step + 1);
  }
  for (const float weight : weights) {
    if (weight < expected - 1e-4F || weight > expected + 1e-4F) return false;
  }
  return true;
}

/// One may have made a step that another has not: all go on from where the first one is. What a worker has is replaced when all of the other's has come: should the
/// first one die in between, it still has a state of which every part belongs to one step.
void take_over(const std::shared_ptr<cd::Cluster>& cluster, std::vector<float>& weights,
               std::int64_t& step) {
  std::vector<float> its_weights = weights;
  std::int64_t its_step = step;
  cd::Communicator world(cluster);
  world.broadcast(cd::Tensor::view(std::span(its_weights), "CPU:0"), /*root=*/0);
  world.broadcast(cd::Tensor::view(std::span(&its_step, 1), "CPU:0"), /*root=*/0);
  weights.swap(its_weights);
  step = its_step;
}

}  // namespace

int main() {
  std::shared_ptr<cd::Cluster> cluster = cd::Cluster::join({.timeout_seconds = 60});
  const int all = cluster->num_workers();
  // Of one cluster: after a failure there is a new cluster, and with it a new object.
  std::optional<cd::CollectiveAllReduce> ops;
  std::vector<float> weights(1000, 1.0F);
  std::vector<float> gradient(weights.size());
  std::int64_t step = 0;
  const cd::PerReplica value{cd::Tensor::view(std::span(gradient), "CPU:0")};
  while (step < kSteps) {
    try {
      if (!ops.has_value()) {
        ops.emplace(cd::Devices({"CPU:0"}), cluster->num_workers(),
                    cd::CommunicationOptions{.timeout_seconds = 30}, cluster);
        take_over(cluster, weights, step);
      }
      const bool is_last = cluster->rank() == all - 1 && all > 1;
      if (step == 5 && is_last) (void)std::raise(SIGKILL);
      // The whole gradient, every time: a reduction in place that failed leaves anything behind.
      for (float& element : gradient) element = static_cast<float>(step + 1);
      ops->reduce_into(cd::ReduceOp::MEAN, value, value);
      for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= kLearningRate * gradient[i];
      ++step;
    } catch (const cd::OpError& error) {
      std::fprintf(stderr, "step %d: %s\n", static_cast<int>(step), error.what());
      ops.reset();
      // Throws where too few are left; and where another one dies meanwhile, who goes on then calls it again.
      cluster = cluster->rebuild(cd::Survivors::ONLY, {.timeout_seconds = 30}).cluster;
    }
  }
  const bool is_right = is_trained(weights) && cluster->num_workers() == (all > 1 ? all - 1 : 1);
  std::printf("rank %d of %d: %s\n", cluster->rank(), cluster->num_workers(),
              is_right ? "right" : "WRONG");
  return is_right ? 0 : 1;
}
