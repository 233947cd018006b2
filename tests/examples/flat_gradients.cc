// SPDX-License-Identifier: Apache-2.0
// A trainer in the manner of llm.c: one process per device, all gradients in one flat buffer, one call per step.
//
//   crossdevice-run -n 2 -- ./flat_gradients
//
// With GPUs each worker takes its share of the machine's (default_devices); buffer and stream would be your own there too.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <crossdevice/crossdevice.h>

namespace cd = crossdevice;
using cd::ReduceOp;

namespace {

constexpr std::size_t kInputs = 16;
constexpr std::size_t kSamples = 64;  // of all workers together

/// A line through the data: kInputs weights and a bias, in one flat buffer as their gradients are.
struct Model {
  std::vector<float> parameters = std::vector<float>(kInputs + 1);
  std::span<float>
      gradients;  // flat, of the library's pool: workers of one machine reduce it where it lies

  static float input(std::size_t sample, std::size_t i) {
    return static_cast<float>((sample * (i + 3)) % 7) / 7 - 0.4F;
  }
  static float target(std::size_t sample) {
    float y = 0.25F;
    for (std::size_t i = 0; i < kInputs; ++i) y += input(sample, i) * static_cast<float>(i % 3);
    return y;
  }

  /// The mean loss of samples [begin, end); writes its gradients.
  float backward(std::size_t begin, std::size_t end) const {
    std::fill(gradients.begin(), gradients.end(), 0.0F);
    float loss = 0;
    const auto count = static_cast<float>(end - begin);
    for (std::size_t sample = begin; sample < end; ++sample) {
      float error = parameters[kInputs] - target(sample);
      for (std::size_t i = 0; i < kInputs; ++i) error += parameters[i] * input(sample, i);
      loss += error * error / count;
      for (std::size_t i = 0; i < kInputs; ++i) {
        gradients[i] += 2 * error * input(sample, i) / count;
      }
      gradients[kInputs] += 2 * error / count;
    }
    return loss;
  }
  void update(float rate) {
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] -= rate * gradients[i];
  }
};

}  // namespace

int main() {
  const std::shared_ptr<cd::Cluster> cluster = cd::Cluster::join({.timeout_seconds = 60});
  cd::CollectiveAllReduce ops({"CPU:0"}, cluster->num_workers(), {.timeout_seconds = 60}, cluster);
  cd::Tensor flat = cd::Tensor::zeros(cd::DType::FLOAT32, {kInputs + 1}, "CPU:0");
  const cd::PerReplica value{flat};  // built once, used every step: nothing is allocated then
  Model model;
  model.gradients = flat.span<float>();

  const auto workers = static_cast<std::size_t>(cluster->num_workers());
  const std::size_t share = kSamples / workers;
  const std::size_t begin = static_cast<std::size_t>(cluster->rank()) * share;
  float first = 0;
  float last = 0;
  for (int step = 0; step < 300; ++step) {
    last = model.backward(begin, begin + share);
    if (step == 0) first = last;
    ops.reduce_into(ReduceOp::MEAN, value, value);
    model.update(0.2F);
  }

  // Every worker has the same bits, or else the trainer is wrong.
  const std::string bits(reinterpret_cast<const char*>(model.parameters.data()),
                         model.parameters.size() * sizeof(float));
  bool are_equal = true;
  for (const std::string& other : cluster->all_gather_bytes(bits))
    are_equal = are_equal && other == bits;
  std::printf("rank %d: loss %g to %g, %s\n", cluster->rank(), first, last,
              are_equal ? "equal weights" : "DIFFERENT WEIGHTS");
  return are_equal && last < first / 20 ? 0 : 1;
}
