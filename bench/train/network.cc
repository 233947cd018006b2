// SPDX-License-Identifier: Apache-2.0
/// Forward and backward passes as matrix products.
// Each replica has a thread of its own: Eigen must not start more.
#define EIGEN_DONT_PARALLELIZE
#include "train/network.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>
#include <utility>

#include <Eigen/Core>
#include <fmt/core.h>

namespace crossdevice::train {

namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using MatrixMap = Eigen::Map<Matrix>;
using ConstMatrixMap = Eigen::Map<const Matrix>;

Eigen::Index index(std::size_t value) { return static_cast<Eigen::Index>(value); }

/// Rows [first_row, first_row + rows) of a layer's weights, which are one parameter.
struct Block {
  std::size_t parameter = 0;
  Eigen::Index first_row = 0;
  Eigen::Index rows = 0;
};

struct Layer {
  std::vector<Block> blocks;
  std::size_t biases = 0;  // parameter
  Eigen::Index columns = 0;

  [[nodiscard]] MatrixMap weights(std::span<const std::span<float>> memory,
                                  const Block& block) const {
    return {memory[block.parameter].data(), block.rows, columns};
  }
  [[nodiscard]] ConstMatrixMap const_weights(std::span<const std::span<float>> memory,
                                             const Block& block) const {
    return {memory[block.parameter].data(), block.rows, columns};
  }
};

std::vector<Layer> layers_of(const NetworkShape& shape) {
  const std::vector<std::size_t>& widths = shape.widths;
  if (widths.size() < 2 || std::find(widths.begin(), widths.end(), 0U) != widths.end()) {
    throw std::invalid_argument("a network needs at least two layers of at least one unit");
  }
  if (shape.max_rows == 0) throw std::invalid_argument("a block of weights needs at least one row");
  std::vector<Layer> layers;
  std::size_t parameter = 0;
  for (std::size_t l = 1; l < widths.size(); ++l) {
    Layer layer;
    layer.columns = index(widths[l]);
    const std::size_t inputs = widths[l - 1];
    const std::size_t num_blocks = (inputs + shape.max_rows - 1) / shape.max_rows;
    for (std::size_t b = 0; b < num_blocks; ++b) {
      const std::size_t begin = inputs * b / num_blocks;
      const std::size_t end = inputs * (b + 1) / num_blocks;
      layer.blocks.push_back(
          {.parameter = parameter++, .first_row = index(begin), .rows = index(end - begin)});
    }
    layer.biases = parameter++;
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace

std::vector<ParameterShape> parameter_shapes(const NetworkShape& shape) {
  std::vector<ParameterShape> shapes;
  const std::vector<Layer> layers = layers_of(shape);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const std::string name = fmt::format("layer{}", l + 1);
    const auto columns = static_cast<std::size_t>(layers[l].columns);
    for (const Block& block : layers[l].blocks) {
      std::string rows;
      if (layers[l].blocks.size() > 1) {
        rows = fmt::format("[{}:{}]", block.first_row, block.first_row + block.rows);
      }
      shapes.push_back({.name = fmt::format("{}.weights{}", name, rows),
                        .rows = static_cast<std::size_t>(block.rows),
                        .columns = columns});
    }
    shapes.push_back({.name = name + ".biases", .rows = 1, .columns = columns});
  }
  return shapes;
}

void initialise_parameters(const NetworkShape& shape, std::uint64_t seed,
                           std::span<const std::span<float>> parameters) {
  // std::uniform_real_distribution is free to differ between standard libraries; the engine is not.
  std::mt19937_64 engine(seed);
  const std::vector<Layer> layers = layers_of(shape);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const double bound = std::sqrt(6.0 / static_cast<double>(shape.widths[l]));
    for (const Block& block : layers[l].blocks) {
      for (float& weight : parameters[block.parameter]) {
        const double uniform = static_cast<double>(engine() >> 11U) / 9007199254740992.0;  // [0, 1)
        weight = static_cast<float>(bound * (2 * uniform - 1));
      }
    }
    const std::span<float> biases = parameters[layers[l].biases];
    std::fill(biases.begin(), biases.end(), 0.0F);
  }
}

struct Network::State {
  std::vector<std::size_t> widths;
  std::vector<Layer> layers;
  std::vector<std::span<float>> parameters;
  std::vector<std::span<float>> gradients;
  // Of each width: [0] the inputs, [l] behind layer l; the last holds logits, then probabilities.
  std::vector<Matrix> activations;
  // [l] the loss's derivative by activations[l] before its ReLU; [0] is not used.
  std::vector<Matrix> deltas;
};

Network::Network(const NetworkShape& shape, std::size_t max_batch,
                 std::span<const std::span<float>> parameters,
                 std::span<const std::span<float>> gradients)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.widths = shape.widths;
  s.layers = layers_of(shape);
  s.parameters.assign(parameters.begin(), parameters.end());
  s.gradients.assign(gradients.begin(), gradients.end());
  const std::vector<ParameterShape> shapes = parameter_shapes(shape);
  bool fits = s.parameters.size() == shapes.size() && s.gradients.size() == shapes.size();
  for (std::size_t p = 0; fits && p < shapes.size(); ++p) {
    fits = s.parameters[p].size() == shapes[p].size() && s.gradients[p].size() == shapes[p].size();
  }
  if (!fits) {
    throw std::invalid_argument("parameters or gradients do not have the network's shapes");
  }
  for (const std::size_t width : s.widths) {
    s.activations.emplace_back(index(max_batch), index(width));
    s.deltas.emplace_back(index(max_batch), index(width));
  }
}

Network::~Network() = default;
Network::Network(Network&&) noexcept = default;

std::span<float> Network::inputs(std::size_t num_examples) {
  return {state_->activations[0].data(), num_examples * state_->widths[0]};
}

Network::Outcome Network::forward(std::span<const std::uint8_t> labels) {
  State& s = *state_;
  const Eigen::Index n = index(labels.size());
  for (std::size_t l = 0; l < s.layers.size(); ++l) {
    const Layer& layer = s.layers[l];
    const auto in = s.activations[l].topRows(n);
    auto out = s.activations[l + 1].topRows(n);
    out.rowwise() =
        Eigen::Map<const Eigen::RowVectorXf>(s.parameters[layer.biases].data(), layer.columns);
    for (const Block& block : layer.blocks) {
      out.noalias() +=
          in.middleCols(block.first_row, block.rows) * layer.const_weights(s.parameters, block);
    }
    if (l + 1 < s.layers.size()) out = out.cwiseMax(0.0F);
  }
  auto outputs = s.activations.back().topRows(n);
  Outcome outcome;
  for (Eigen::Index i = 0; i < n; ++i) {
    auto row = outputs.row(i);
    const Eigen::Index label = labels[static_cast<std::size_t>(i)];
    Eigen::Index largest = 0;
    const float maximum = row.maxCoeff(&largest);
    if (largest == label) ++outcome.num_correct;
    const float logit = row(label) - maximum;
    row = (row.array() - maximum).exp();
    const float sum = row.sum();
    row /= sum;
    outcome.loss_sum += std::log(static_cast<double>(sum)) - static_cast<double>(logit);
  }
  return outcome;
}

void Network::backward(std::span<const std::uint8_t> labels, float scale,
                       const std::function<void(std::size_t)>& ready) {
  State& s = *state_;
  const Eigen::Index n = index(labels.size());
  auto last = s.deltas.back().topRows(n);
  last = s.activations.back().topRows(n) * scale;
  for (Eigen::Index i = 0; i < n; ++i) last(i, labels[static_cast<std::size_t>(i)]) -= scale;

  for (std::size_t l = s.layers.size(); l-- > 0;) {
    const Layer& layer = s.layers[l];
    const auto in = s.activations[l].topRows(n);
    const auto delta = s.deltas[l + 1].topRows(n);
    auto before = s.deltas[l].topRows(n);
    Eigen::Map<Eigen::RowVectorXf>(s.gradients[layer.biases].data(), layer.columns) =
        delta.colwise().sum();
    ready(layer.biases);
    for (auto block = layer.blocks.rbegin(); block != layer.blocks.rend(); ++block) {
      const auto in_block = in.middleCols(block->first_row, block->rows);
      layer.weights(s.gradients, *block).noalias() = in_block.transpose() * delta;
      ready(block->parameter);
      if (l == 0) continue;
      auto before_block = before.middleCols(block->first_row, block->rows);
      before_block.noalias() = delta * layer.const_weights(s.parameters, *block).transpose();
      before_block = (in_block.array() > 0.0F).select(before_block, 0.0F);
    }
  }
}

}  // namespace crossdevice::train
