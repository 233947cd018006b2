// SPDX-License-Identifier: Apache-2.0
// Several processes: crossdevice-run -n 2 -- ./two_workers, or any other launcher.
#include <cstdio>
#include <memory>
#include <vector>

#include <crossdevice/crossdevice.h>

namespace cd = crossdevice;
using cd::ReduceOp;

int main() {
  const std::shared_ptr<cd::Cluster> cluster = cd::Cluster::join({.timeout_seconds = 60});
  cd::CollectiveAllReduce ops({"CPU:0"}, cluster->num_workers(), {.timeout_seconds = 60}, cluster);

  // Weights begin as the first worker's, wherever this one comes from.
  cd::Communicator world(cluster);
  std::vector<float> weights(1000, static_cast<float>(cluster->rank() + 7));
  world.broadcast(cd::Tensor::view(std::span(weights), "CPU:0"), /*root=*/0);

  // Gradients from the pool are reduced where they lie; those of your own (here the second) go through a window.
  cd::Tensor pooled = cd::Tensor::empty(cd::DType::FLOAT32, {1000}, "CPU:0");
  std::vector<float> own(500);
  const std::vector<cd::PerReplica> gradients{{pooled},
                                              {cd::Tensor::view(std::span(own), "CPU:0")}};
  bool is_right = weights[999] == 7;
  for (int step = 1; step <= 3; ++step) {
    const auto mine = static_cast<float>(step * (cluster->rank() + 1));
    for (float& element : pooled.span<float>()) element = mine;
    for (float& element : own) element = -mine;
    ops.batch_reduce_into(ReduceOp::SUM, gradients, {.bytes_per_pack = 1 << 20});
    const int n = cluster->num_workers();
    const auto sum = static_cast<float>(step * n * (n + 1) / 2);
    is_right = is_right && pooled.span<const float>()[999] == sum && own[499] == -sum;
  }
  cluster->barrier();
  std::printf("rank %d of %d: %s\n", cluster->rank(), cluster->num_workers(),
              is_right ? "right" : "WRONG");
  return is_right ? 0 : 1;
}
