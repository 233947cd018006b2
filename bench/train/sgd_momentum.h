// SPDX-License-Identifier: Apache-2.0
/// Stochastic gradient descent with momentum: velocity = momentum * velocity + gradient; parameter -= rate * velocity.
#pragma once

#include <span>
#include <vector>

namespace crossdevice::train {

/// One replica's optimiser; replicas that see the same gradients stay equal to the bit.
class SgdMomentum {
 public:
  /// Memory   borrows `parameters` for its whole life; the velocities, zero at first, are its own.
  SgdMomentum(std::span<const std::span<float>> parameters, float momentum);

  /// `gradients` has the parameters' shapes.
  void apply(std::span<const std::span<float>> gradients, float rate);
  /// One per parameter.
  [[nodiscard]] std::vector<std::vector<float>>& velocities() { return velocities_; }
  [[nodiscard]] const std::vector<std::vector<float>>& velocities() const { return velocities_; }

 private:
  std::vector<std::span<float>> parameters_;
  std::vector<std::vector<float>> velocities_;
  float momentum_;
};

}  // namespace crossdevice::train
