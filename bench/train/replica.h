// SPDX-License-Identifier: Apache-2.0
/// One replica of the training: its weights and gradients on its device, its network, its optimiser.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "crossdevice/device/tensor.h"

#include "train/data_set.h"
#include "train/network.h"
#include "train/sgd_momentum.h"

namespace crossdevice::train {

/// Memory   borrows the tensors' memory; the caller keeps them alive. Host devices only.
/// Threads  one at a time; replicas run concurrently.
class Replica {
 public:
  Replica(const NetworkShape& shape, std::size_t max_batch, float momentum,
          std::span<const Tensor> weights, std::span<const Tensor> gradients);

  /// Forward and backward over these examples. Gradients are of `scale` times the sum of losses; `ready(p)` as Network::backward.
  Network::Outcome compute_gradients(const LabelledImages& images,
                                     std::span<const std::size_t> examples, float scale,
                                     const std::function<void(std::size_t)>& ready);
  /// Applies the gradients as they are now.
  void update(float rate);
  /// How many of these examples the network classifies right.
  [[nodiscard]] std::size_t count_correct(const LabelledImages& images,
                                          std::span<const std::size_t> examples);

  /// The weights and then the optimiser's velocities, in parameter order, as one list.
  [[nodiscard]] std::vector<float> state() const;
  /// What state() has returned, here or elsewhere.
  ///
  /// Errors   std::invalid_argument: of another size.
  void set_state(std::span<const float> state);

 private:
  Network::Outcome forward(const LabelledImages& images, std::span<const std::size_t> examples);

  std::size_t max_batch_;
  std::vector<std::span<float>> weights_;
  std::vector<std::span<float>> gradients_;
  std::vector<std::uint8_t> labels_;  // of the last forward()
  Network network_;
  SgdMomentum optimiser_;
};

}  // namespace crossdevice::train
