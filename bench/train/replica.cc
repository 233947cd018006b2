// SPDX-License-Identifier: Apache-2.0
/// Feeds examples to a network and gradients to its optimiser.
#include "train/replica.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace crossdevice::train {

namespace {

std::vector<std::span<float>> memory_of(std::span<const Tensor> tensors) {
  std::vector<std::span<float>> spans;
  for (const Tensor& tensor : tensors) spans.push_back(tensor.span<float>());
  return spans;
}

}  // namespace

Replica::Replica(const NetworkShape& shape, std::size_t max_batch, float momentum,
                 std::span<const Tensor> weights, std::span<const Tensor> gradients)
    : max_batch_(max_batch),
      weights_(memory_of(weights)),
      gradients_(memory_of(gradients)),
      network_(shape, max_batch, weights_, gradients_),
      optimiser_(weights_, momentum) {
  labels_.reserve(max_batch);
}

Network::Outcome Replica::forward(const LabelledImages& images,
                                  std::span<const std::size_t> examples) {
  const std::array<float, 256>& normalised = normalised_pixels();
  float* input = network_.inputs(examples.size()).data();
  labels_.clear();
  for (const std::size_t example : examples) {
    labels_.push_back(images.labels[example]);
    for (const std::uint8_t pixel : images.image(example)) *input++ = normalised[pixel];
  }
  return network_.forward(labels_);
}

Network::Outcome Replica::compute_gradients(const LabelledImages& images,
                                            std::span<const std::size_t> examples, float scale,
                                            const std::function<void(std::size_t)>& ready) {
  const Network::Outcome outcome = forward(images, examples);
  network_.backward(labels_, scale, ready);
  return outcome;
}

void Replica::update(float rate) { optimiser_.apply(gradients_, rate); }

std::size_t Replica::count_correct(const LabelledImages& images,
                                   std::span<const std::size_t> examples) {
  std::size_t correct = 0;
  for (std::size_t done = 0; done < examples.size(); done += max_batch_) {
    const std::size_t count = std::min(max_batch_, examples.size() - done);
    correct += forward(images, examples.subspan(done, count)).num_correct;
  }
  return correct;
}

std::vector<float> Replica::state() const {
  std::vector<float> all;
  for (const std::span<float> part : weights_) all.insert(all.end(), part.begin(), part.end());
  for (const std::vector<float>& part : optimiser_.velocities()) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

void Replica::set_state(std::span<const float> state) {
  std::size_t size = 0;
  for (const std::span<float> part : weights_) size += 2 * part.size();
  if (state.size() != size) {
    throw std::invalid_argument("the state has " + std::to_string(state.size()) +
                                " numbers, expected " + std::to_string(size));
  }
  const auto take = [&state](std::span<float> part) {
    std::copy_n(state.begin(), part.size(), part.begin());
    state = state.subspan(part.size());
  };
  for (const std::span<float> part : weights_) take(part);
  for (std::vector<float>& part : optimiser_.velocities()) take(part);
}

}  // namespace crossdevice::train
