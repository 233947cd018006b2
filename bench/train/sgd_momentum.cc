// SPDX-License-Identifier: Apache-2.0
/// The update loop of SGD with momentum.
#include "train/sgd_momentum.h"

#include <cstddef>

namespace crossdevice::train {

SgdMomentum::SgdMomentum(std::span<const std::span<float>> parameters, float momentum)
    : parameters_(parameters.begin(), parameters.end()), momentum_(momentum) {
  for (const std::span<float> parameter : parameters_) velocities_.emplace_back(parameter.size());
}

void SgdMomentum::apply(std::span<const std::span<float>> gradients, float rate) {
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    float* const parameter = parameters_[p].data();
    float* const velocity = velocities_[p].data();
    const float* const gradient = gradients[p].data();
    for (std::size_t i = 0; i < parameters_[p].size(); ++i) {
      velocity[i] = momentum_ * velocity[i] + gradient[i];
      parameter[i] -= rate * velocity[i];
    }
  }
}

}  // namespace crossdevice::train
