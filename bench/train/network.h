// SPDX-License-Identifier: Apache-2.0
/// A small fully connected network (ReLU between layers, softmax cross entropy at the end) over memory that the caller owns.
///
/// One object is one replica. It runs on the calling thread alone: parallelism comes from the replicas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace crossdevice::train {

/// One trained array: rows of a layer's weights, row-major (inputs, outputs), or its biases.
struct ParameterShape {
  std::string name;  ///< "layer1.weights[112:224]", "layer1.biases"
  std::size_t rows = 0;
  std::size_t columns = 0;
  [[nodiscard]] std::size_t size() const { return rows * columns; }
};

/// A fully connected network: {inputs, hidden..., classes}.
struct NetworkShape {
  std::vector<std::size_t> widths;
  /// Weights of more inputs than this are cut into equal blocks of rows. A block's gradient is complete, and can be reduced, while those of the
  /// others are still computed. TF counterpart: partitioned variables.
  std::size_t max_rows = 200;
};

/// Layer by layer, blocks of weights in row order, then the biases.
///
/// Errors   std::invalid_argument: fewer than two widths, one of 0, max_rows 0.
[[nodiscard]] std::vector<ParameterShape> parameter_shapes(const NetworkShape& shape);

/// He's initialisation: weights uniform in +-sqrt(6 / inputs), biases 0. The same numbers on every machine and for every max_rows.
void initialise_parameters(const NetworkShape& shape, std::uint64_t seed,
                           std::span<const std::span<float>> parameters);

class Network {
 public:
  /// Memory   borrows `parameters` (only read) and `gradients` (only written), one span per parameter_shapes(shape), for its whole life.
  ///          Work space for `max_batch` examples is allocated here; nothing is allocated later.
  Network(const NetworkShape& shape, std::size_t max_batch,
          std::span<const std::span<float>> parameters,
          std::span<const std::span<float>> gradients);
  ~Network();
  Network(Network&&) noexcept;
  Network& operator=(Network&&) = delete;

  /// The work space for one batch of inputs, (examples, inputs) row-major: fill it, then call forward().
  [[nodiscard]] std::span<float> inputs(std::size_t num_examples);

  struct Outcome {
    double loss_sum = 0;          ///< of the examples' cross entropies
    std::size_t num_correct = 0;  ///< examples whose largest output is their class
  };
  /// Runs the network over the inputs() of `labels.size()` examples.
  Outcome forward(std::span<const std::uint8_t> labels);

  /// Back-propagation of the last forward(): the gradient of `scale` times the sum of losses. `ready(p)` is called as soon as gradient p
  /// is complete: the last one first, while those before it are still to be computed.
  void backward(std::span<const std::uint8_t> labels, float scale,
                const std::function<void(std::size_t parameter)>& ready);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace crossdevice::train
