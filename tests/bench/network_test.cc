// SPDX-License-Identifier: Apache-2.0
/// Tests of train/network.h and train/sgd_momentum.h.
#include "train/network.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "train/sgd_momentum.h"

namespace crossdevice::train {
namespace {

/// A network with memory of its own and a fixed batch.
class SmallNetwork {
 public:
  SmallNetwork(const NetworkShape& shape, std::size_t batch) : batch_(batch) {
    shapes_ = parameter_shapes(shape);
    for (const ParameterShape& parameter : shapes_) {
      parameters_.emplace_back(parameter.size());
      gradients_.emplace_back(parameter.size(), -99.0F);
    }
    for (auto& parameter : parameters_) parameter_spans_.emplace_back(parameter);
    for (auto& gradient : gradients_) gradient_spans_.emplace_back(gradient);
    initialise_parameters(shape, 3, parameter_spans_);
    // Biases away from 0, so that their place in the formulas shows.
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      if (!shapes_[p].name.ends_with("biases")) continue;
      for (std::size_t i = 0; i < parameters_[p].size(); ++i) {
        parameters_[p][i] = 0.1F * static_cast<float>(i % 3) - 0.05F;
      }
    }
    classes_ = shape.widths.back();
    network_ = std::make_unique<Network>(shape, batch, parameter_spans_, gradient_spans_);
    for (std::size_t i = 0; i < batch; ++i)
      labels_.push_back(static_cast<std::uint8_t>((i * 7 + 1) % classes_));
  }

  Network::Outcome forward() {
    const std::span<float> in = network_->inputs(batch_);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = std::sin(static_cast<float>(i) * 1.7F);
    return network_->forward(labels_);
  }
  void backward(float scale, std::vector<std::size_t>* order = nullptr) {
    network_->backward(labels_, scale, [&](std::size_t p) {
      if (order != nullptr) order->push_back(p);
    });
  }

  std::size_t batch_;
  std::size_t classes_ = 0;
  std::vector<ParameterShape> shapes_;
  std::vector<std::vector<float>> parameters_;
  std::vector<std::vector<float>> gradients_;
  std::vector<std::span<float>> parameter_spans_;
  std::vector<std::span<float>> gradient_spans_;
  std::vector<std::uint8_t> labels_;
  std::unique_ptr<Network> network_;
};

std::vector<std::string> names_of(const NetworkShape& shape) {
  std::vector<std::string> names;
  for (const ParameterShape& parameter : parameter_shapes(shape)) names.push_back(parameter.name);
  return names;
}

TEST(NetworkTest, ShapesAreWeightsThenBiasesLayerByLayer) {
  const NetworkShape shape{.widths = {784, 256, 10}, .max_rows = 1000};
  EXPECT_EQ(names_of(shape), (std::vector<std::string>{"layer1.weights", "layer1.biases",
                                                       "layer2.weights", "layer2.biases"}));
  const auto shapes = parameter_shapes(shape);
  EXPECT_EQ(shapes[0].size(), 784U * 256);
  EXPECT_EQ(shapes[3].size(), 10U);
}

TEST(NetworkTest, LargeWeightsAreCutIntoBlocksThatCoverEveryRow) {
  const NetworkShape shape{.widths = {7, 2}, .max_rows = 3};
  EXPECT_EQ(names_of(shape), (std::vector<std::string>{"layer1.weights[0:2]", "layer1.weights[2:4]",
                                                       "layer1.weights[4:7]", "layer1.biases"}));
  std::size_t size = 0;
  for (const ParameterShape& parameter : parameter_shapes(shape)) size += parameter.size();
  EXPECT_EQ(size, 7U * 2 + 2);
}

TEST(NetworkTest, RefusesNetworksWithoutLayersOrUnits) {
  EXPECT_THROW((void)parameter_shapes({.widths = {10}}), std::invalid_argument);
  EXPECT_THROW((void)parameter_shapes({.widths = {10, 0, 3}}), std::invalid_argument);
  EXPECT_THROW((void)parameter_shapes({.widths = {10, 3}, .max_rows = 0}), std::invalid_argument);
}

std::vector<float> initial(const NetworkShape& shape, std::uint64_t seed) {
  std::vector<float> memory(20 * 5 + 5, 99.0F);
  std::vector<std::span<float>> spans;
  std::size_t used = 0;
  for (const ParameterShape& parameter : parameter_shapes(shape)) {
    spans.push_back(std::span(memory).subspan(used, parameter.size()));
    used += parameter.size();
  }
  initialise_parameters(shape, seed, spans);
  return memory;
}

TEST(NetworkTest, InitialWeightsDependOnTheSeedAlone) {
  const NetworkShape whole{.widths = {20, 5}};
  const NetworkShape cut{.widths = {20, 5}, .max_rows = 6};
  const std::vector<float> weights = initial(whole, 1);
  EXPECT_EQ(weights, initial(whole, 1));
  EXPECT_EQ(weights, initial(cut, 1));
  EXPECT_NE(weights, initial(whole, 2));
}

TEST(NetworkTest, InitialWeightsFillTheirRangeAndBiasesAreZero) {
  const std::vector<float> memory = initial({.widths = {20, 5}}, 1);
  const std::span<const float> weights = std::span(memory).first(100);
  const float bound = std::sqrt(6.0F / 20.0F);
  EXPECT_LE(*std::max_element(weights.begin(), weights.end()), bound);
  EXPECT_GE(*std::min_element(weights.begin(), weights.end()), -bound);
  EXPECT_GT(*std::max_element(weights.begin(), weights.end()), bound / 2);
  EXPECT_LT(*std::min_element(weights.begin(), weights.end()), -bound / 2);
  for (const float bias : std::span(memory).subspan(100)) EXPECT_EQ(bias, 0.0F);
}

TEST(NetworkTest, ForwardAgreesWithPlainLoops) {
  SmallNetwork net({.widths = {6, 5, 3}}, 4);
  const Network::Outcome outcome = net.forward();
  double loss = 0;
  std::size_t correct = 0;
  for (std::size_t example = 0; example < 4; ++example) {
    std::vector<double> values;
    for (std::size_t i = 0; i < 6; ++i)
      values.push_back(static_cast<double>(std::sin(static_cast<float>(example * 6 + i) * 1.7F)));
    for (std::size_t layer = 0; layer < 2; ++layer) {
      const ParameterShape& shape = net.shapes_[2 * layer];
      std::vector<double> next;
      for (std::size_t column = 0; column < shape.columns; ++column) {
        double sum = static_cast<double>(net.parameters_[2 * layer + 1][column]);
        for (std::size_t row = 0; row < shape.rows; ++row) {
          sum += values[row] *
                 static_cast<double>(net.parameters_[2 * layer][row * shape.columns + column]);
        }
        next.push_back(layer == 0 ? std::max(sum, 0.0) : sum);
      }
      values = next;
    }
    double sum = 0;
    for (const double value : values) sum += std::exp(value);
    loss += std::log(sum) - values[net.labels_[example]];
    const auto largest = std::max_element(values.begin(), values.end()) - values.begin();
    if (largest == net.labels_[example]) ++correct;
  }
  EXPECT_NEAR(outcome.loss_sum, loss, 1e-5);
  EXPECT_EQ(outcome.num_correct, correct);
}

TEST(NetworkTest, GradientsAgreeWithFiniteDifferences) {
  SmallNetwork net({.widths = {6, 7, 5, 4}, .max_rows = 3}, 9);
  const double scale = 0.25;
  const double middle = scale * net.forward().loss_sum;
  net.backward(0.25F);
  const auto analytic = net.gradients_;
  const float step = 2e-3F;
  std::size_t num_compared = 0;
  std::size_t num_large = 0;
  std::size_t num_corners = 0;
  for (std::size_t p = 0; p < net.parameters_.size(); ++p) {
    for (std::size_t i = 0; i < net.parameters_[p].size(); ++i) {
      float& parameter = net.parameters_[p][i];
      const float before = parameter;
      parameter = before + step;
      const double right = (scale * net.forward().loss_sum - middle) / static_cast<double>(step);
      parameter = before - step;
      const double left = (middle - scale * net.forward().loss_sum) / static_cast<double>(step);
      parameter = before;
      // Where a step crosses the corner of a ReLU the two sides' slopes differ and there is nothing to compare with.
      if (std::abs(right - left) > 8e-3) {
        ++num_corners;
        continue;
      }
      ++num_compared;
      EXPECT_NEAR(static_cast<double>(analytic[p][i]), (left + right) / 2, 2e-3)
          << net.shapes_[p].name << " " << i;
      if (std::abs(analytic[p][i]) > 4e-2F) ++num_large;
    }
  }
  EXPECT_GT(num_compared, 10 * num_corners);
  EXPECT_GT(num_large, num_compared / 3);
}

TEST(NetworkTest, GradientsAreReportedOnceEachLastLayerFirst) {
  SmallNetwork net({.widths = {6, 5, 3}, .max_rows = 3}, 4);  // 2 blocks and biases, then the same
  (void)net.forward();
  std::vector<std::size_t> order;
  net.backward(1.0F, &order);
  EXPECT_EQ(order, (std::vector<std::size_t>{5, 4, 3, 2, 1, 0}));
}

TEST(NetworkTest, BlocksChangeResultsByRoundingOnly) {
  SmallNetwork whole({.widths = {6, 5, 3}}, 4);
  SmallNetwork cut({.widths = {6, 5, 3}, .max_rows = 2}, 4);
  EXPECT_NEAR(whole.forward().loss_sum, cut.forward().loss_sum, 1e-5);
  whole.backward(1.0F);
  cut.backward(1.0F);
  std::vector<float> together;
  for (std::size_t p = 0; p < 3; ++p) {
    together.insert(together.end(), cut.gradients_[p].begin(), cut.gradients_[p].end());
  }
  ASSERT_EQ(together.size(), whole.gradients_[0].size());
  for (std::size_t i = 0; i < together.size(); ++i) {
    EXPECT_NEAR(together[i], whole.gradients_[0][i], 1e-5F);
  }
}

TEST(NetworkTest, ABatchWithoutExamplesHasZeroGradients) {
  SmallNetwork net({.widths = {6, 5, 3}}, 4);
  net.labels_.clear();
  net.batch_ = 0;
  const Network::Outcome outcome = net.forward();
  net.backward(1.0F);
  EXPECT_EQ(outcome.loss_sum, 0);
  for (const auto& gradient : net.gradients_) {
    for (const float element : gradient) EXPECT_EQ(element, 0.0F);
  }
}

TEST(NetworkTest, LargeLogitsDoNotOverflow) {
  SmallNetwork net({.widths = {6, 3}}, 4);
  for (float& weight : net.parameters_[0]) weight *= 1e4F;
  EXPECT_TRUE(std::isfinite(net.forward().loss_sum));
  net.backward(1.0F);
  for (const float element : net.gradients_[0]) EXPECT_TRUE(std::isfinite(element));
}

TEST(SgdMomentumTest, FollowsTheFormula) {
  std::vector<float> parameter = {1.0F, 2.0F};
  std::vector<float> gradient = {0.5F, -1.0F};
  const std::vector<std::span<float>> parameters = {parameter};
  const std::vector<std::span<float>> gradients = {gradient};
  SgdMomentum optimiser(parameters, 0.5F);
  optimiser.apply(gradients, 0.25F);  // velocity = gradient
  EXPECT_EQ(parameter, (std::vector<float>{0.875F, 2.25F}));
  gradient = {1.0F, 0.0F};
  optimiser.apply(gradients, 0.25F);  // velocity = 0.5 * (0.5, -1) + (1, 0)
  EXPECT_EQ(parameter, (std::vector<float>{0.5625F, 2.375F}));
}

}  // namespace
}  // namespace crossdevice::train
