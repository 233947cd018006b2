// SPDX-License-Identifier: Apache-2.0
// Gradients leave while back-propagation still computes: GradientBucketer, with replicas on threads of their own.
#include <cstdio>
#include <span>
#include <thread>
#include <vector>

#include <crossdevice/crossdevice.h>

namespace cd = crossdevice;
using cd::ReduceOp;

namespace {

constexpr std::size_t kLayers = 6;
constexpr std::size_t kReplicas = 2;

/// Stands for a layer's share of back-propagation.
void backward(std::size_t layer, std::size_t replica, std::span<float> gradient) {
  for (float& element : gradient) element = static_cast<float>(layer * 10 + replica);
}

}  // namespace

int main() {
  std::vector<std::vector<std::vector<float>>> memory(kReplicas);
  std::vector<cd::PerReplica> gradients;
  for (std::size_t replica = 0; replica < kReplicas; ++replica) {
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      memory[replica].emplace_back(20'000 * (layer + 1));
    }
  }
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    gradients.push_back({cd::Tensor::view(std::span(memory[0][layer]), "CPU:0"),
                         cd::Tensor::view(std::span(memory[1][layer]), "CPU:1")});
  }

  cd::HierarchicalCopyAllReduce ops;
  cd::GradientBucketer bucketer(
      ops, gradients,
      {.op = ReduceOp::MEAN,
       .communication = {.bytes_per_pack = 256 << 10, .timeout_seconds = 60}});
  bool is_right = true;
  for (int step = 0; step < 3; ++step) {
    std::vector<std::jthread> replicas;
    for (std::size_t replica = 0; replica < kReplicas; ++replica) {
      replicas.emplace_back([&, replica] {
        for (std::size_t layer = kLayers; layer-- > 0;) {
          backward(layer, replica, memory[replica][layer]);
          bucketer.ready(layer, replica);  // the pack leaves when every replica has said so
        }
      });
    }
    replicas.clear();  // joins: all gradients are on their way
    // Packs that have come are applied while later ones still move.
    for (const std::size_t layer : bucketer.in_completion_order()) {
      const float mean = static_cast<float>(layer * 10) + 0.5F;
      for (const auto& replica : memory) {
        is_right = is_right && replica[layer].front() == mean && replica[layer].back() == mean;
      }
    }
    bucketer.wait();
  }
  std::printf("%zu gradients in %zu packs: %s\n", gradients.size(), bucketer.num_packs(),
              is_right ? "right" : "WRONG");
  return is_right && bucketer.num_packs() > 1 ? 0 : 1;
}
