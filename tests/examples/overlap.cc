// SPDX-License-Identifier: Apache-2.0
// Gradients leave while back-propagation still computes: GradientBucketer, with replicas on threads of their own.
//
// To show it, the last layer computes here for as long as packs without it are on their way: were they kept until all is computed, it would wait in vain.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include <crossdevice/crossdevice.h>

namespace cd = crossdevice;
using cd::ReduceOp;

namespace {

constexpr std::size_t kLayers = 6;
constexpr std::size_t kReplicas = 2;
constexpr std::chrono::seconds kPatience{30};

/// Counts the packs that have been reduced. A program needs nothing of the kind.
class CountingOps : public cd::HierarchicalCopyAllReduce {
 public:
  /// Whether there are so many, of all steps, before `deadline`.
  bool await_packs(std::size_t count, std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline, [&] { return num_reduced_ >= count; });
  }

 protected:
  std::vector<cd::Mirrored> batch_reduce_implementation(
      ReduceOp op, std::span<const cd::ValueDestinationPair> pairs,
      const cd::CommunicationOptions& options) override {
    std::vector<cd::Mirrored> results =
        cd::HierarchicalCopyAllReduce::batch_reduce_implementation(op, pairs, options);
    {
      const std::lock_guard lock(mutex_);
      ++num_reduced_;
    }
    changed_.notify_all();
    return results;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t num_reduced_ = 0;
};

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

  CountingOps ops;
  cd::GradientBucketer bucketer(
      ops, gradients,
      {.op = ReduceOp::MEAN,
       .communication = {.bytes_per_pack = 256 << 10, .timeout_seconds = 60}});
  const std::size_t num_packs = bucketer.num_packs();
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  std::atomic<bool> overlaps = num_packs > 1;
  bool is_right = true;
  for (std::size_t step = 0; step < 3; ++step) {
    std::vector<std::jthread> replicas;
    for (std::size_t replica = 0; replica < kReplicas; ++replica) {
      replicas.emplace_back([&, replica] {
        for (std::size_t layer = kLayers; layer-- > 0;) {
          backward(layer, replica, memory[replica][layer]);
          // All packs of this step but the last, which needs this layer, are reduced meanwhile.
          const bool is_last = layer == 0;
          if (is_last && !ops.await_packs((step + 1) * num_packs - 1, deadline)) overlaps = false;
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
  std::printf("%zu gradients in %zu packs: %s, %s\n", gradients.size(), num_packs,
              is_right ? "right" : "WRONG",
              overlaps ? "all but the last reduced during back-propagation"
                       : "NOT reduced during back-propagation");
  return is_right && overlaps ? 0 : 1;
}
