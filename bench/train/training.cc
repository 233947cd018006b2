// SPDX-License-Identifier: Apache-2.0
/// Steps, epochs and tests of data-parallel training.
#include "train/training.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <optional>
#include <sstream>
#include <utility>

#include <fmt/core.h>

#include "crossdevice/strategy/mirrored_strategy.h"
#include "crossdevice/strategy/multi_worker_mirrored_strategy.h"

#include "support/program.h"
#include "train/epoch_order.h"
#include "train/logging_ops.h"

namespace crossdevice::train {

namespace {

/// Test images are classified in batches of at least this many.
constexpr std::size_t kMinWorkSpace = 100;

NetworkShape network_shape(const DataSet& data, const TrainingOptions& options) {
  NetworkShape shape;
  shape.widths = {data.train.pixels_per_image};
  shape.widths.insert(shape.widths.end(), options.hidden_widths.begin(),
                      options.hidden_widths.end());
  shape.widths.push_back(kNumClasses);
  return shape;
}

Shape tensor_shape(const ParameterShape& shape) {
  if (shape.rows == 1) return Shape{shape.columns};
  return Shape{shape.rows, shape.columns};
}

std::unique_ptr<Strategy> make_strategy(const TrainingOptions& options, CommunicationLog& log) {
  if (options.cluster == nullptr || options.cluster->num_workers() == 1) {
    return std::make_unique<MirroredStrategy>(MirroredStrategyOptions{
        .devices = options.devices,
        .cross_device_ops = make_logging_ops(options.cross_device_ops, options.devices, log)});
  }
  if (options.cross_device_ops != "auto") {
    throw programs::ArgumentError(options.cross_device_ops +
                                  " reduces within one process; several workers need auto");
  }
  return std::make_unique<MultiWorkerMirroredStrategy>(MultiWorkerMirroredStrategyOptions{
      .devices = options.devices,
      .cluster = options.cluster,
      .cross_device_ops = make_logging_collective_ops(options.devices, options.cluster, log)});
}

/// This worker's number added to the other workers'.
template <class T>
T sum_over_workers(Strategy& strategy, T number) {
  if (strategy.extended().num_workers() == 1) return number;
  const Tensor own = Tensor::copy_of(std::span<const T>(&number, 1), Shape{}, Device("CPU:0"));
  return strategy.reduce(ReduceOp::SUM, own, std::nullopt).template span<const T>()[0];
}

/// Epoch and next step of every worker.
std::vector<std::pair<std::size_t, std::size_t>> all_positions(Cluster& cluster,
                                                               const TrainingState& own) {
  std::vector<std::pair<std::size_t, std::size_t>> positions;
  for (const std::string& text :
       cluster.all_gather_bytes(fmt::format("{} {}", own.epoch, own.step))) {
    std::istringstream words(text);
    words >> positions.emplace_back().first >> positions.back().second;
  }
  return positions;
}

}  // namespace

Training::Training(const DataSet& data, const TrainingOptions& options)
    : data_(data), options_(options), strategy_(make_strategy(options, log_)) {
  if (options.batch_size == 0) throw programs::ArgumentError("the batch size must be at least 1");
  // A larger batch is the whole data set, for which there is work space and whose steps can be counted.
  options_.batch_size = std::min(options.batch_size, data.train.size());
  const NetworkShape network = network_shape(data, options);
  const std::vector<ParameterShape> shapes = parameter_shapes(network);

  std::vector<Tensor> initial;
  std::vector<std::span<float>> initial_memory;
  for (const ParameterShape& shape : shapes) {
    initial.push_back(Tensor::empty(DType::FLOAT32, tensor_shape(shape), "CPU:0"));
    initial_memory.push_back(initial.back().span<float>());
  }
  initialise_parameters(network, options.seed, initial_memory);

  for (std::size_t p = 0; p < shapes.size(); ++p) {
    variables_.push_back(strategy_->make_variable(
        initial[p], {.name = shapes[p].name, .aggregation = VariableAggregation::MEAN}));
    std::vector<Tensor> components;
    for (const Device& device : options.devices) {
      components.push_back(Tensor::zeros(DType::FLOAT32, tensor_shape(shapes[p]), device));
    }
    gradients_.emplace_back(components);
  }
  const std::size_t share = (options_.batch_size + num_replicas() - 1) / num_replicas();
  for (std::size_t r = 0; r < num_local_replicas(); ++r) {
    std::vector<Tensor> weights;
    std::vector<Tensor> gradients;
    for (std::size_t p = 0; p < shapes.size(); ++p) {
      weights.push_back(variables_[p]->components().values()[r]);
      gradients.push_back(gradients_[p].values()[r]);
    }
    replicas_.emplace_back(network, std::max(share, kMinWorkSpace), options.momentum, weights,
                           gradients);
  }
  bucketer_ = std::make_unique<GradientBucketer>(
      strategy_->extended().cross_device_ops(), gradients_,
      BucketerOptions{.op = ReduceOp::SUM,
                      .communication = {.bytes_per_pack = options.bytes_per_pack,
                                        .deterministic = options.deterministic,
                                        .grouping_independent = options.grouping_independent}});
}

std::size_t Training::local_id(const ReplicaContext& context) const {
  return context.replica_id_in_sync_group() - strategy_->extended().first_replica_id();
}

std::span<const std::size_t> Training::part(std::span<const std::size_t> all,
                                            std::size_t local_id) const {
  return part_of_replica(all, strategy_->extended().first_replica_id() + local_id, num_replicas());
}

std::size_t Training::local_count(std::span<const std::size_t> all) const {
  std::size_t count = 0;
  for (std::size_t r = 0; r < num_local_replicas(); ++r) count += part(all, r).size();
  return count;
}

Training::StepResult Training::run_step(std::span<const std::size_t> batch, float rate) {
  const float scale = 1.0F / static_cast<float>(batch.size());
  StepMoments moments;
  moments.begin = Clock::now();
  const std::vector<double> losses = strategy_->run([&](ReplicaContext& context) {
    const std::size_t id = local_id(context);
    Replica& replica = replicas_[id];
    const Network::Outcome outcome =
        replica.compute_gradients(data_.train, part(batch, id), scale,
                                  [&](std::size_t parameter) { bucketer_->ready(parameter, id); });
    // Runs once on each worker, when its last replica has come this far.
    context.merge_call([&](Strategy&) {
      moments.computed = Clock::now();
      bucketer_->wait();
      moments.reduced = Clock::now();
    });
    replica.update(rate);
    return outcome.loss_sum;
  });
  moments.end = Clock::now();
  return {.loss_sum = std::accumulate(losses.begin(), losses.end(), 0.0),
          .time = split_step(moments, log_.take())};
}

EpochResult Training::run_epoch(
    std::size_t epoch, const std::function<void(std::size_t, std::size_t, double)>& on_step) {
  const std::vector<std::size_t> order = epoch_order(data_.train.size(), options_.seed, epoch);
  const std::size_t steps = (order.size() + options_.batch_size - 1) / options_.batch_size;
  const double all_steps = static_cast<double>(steps * options_.epochs);
  if (position_.epoch != epoch) position_ = TrainingState{.epoch = epoch};
  while (position_.step < steps) {
    const std::size_t begin = position_.step * options_.batch_size;
    const std::size_t count = std::min(options_.batch_size, order.size() - begin);
    const double left = 1 - static_cast<double>(epoch * steps + position_.step) / all_steps;
    const std::span<const std::size_t> batch = std::span(order).subspan(begin, count);
    const StepResult done = run_step(batch, options_.rate * static_cast<float>(left));
    const std::size_t local = local_count(batch);
    position_.loss_sum += done.loss_sum;
    position_.num_examples += local;
    position_.time += done.time;
    on_step(++position_.step, steps,
            done.loss_sum / static_cast<double>(std::max(local, std::size_t{1})));
  }
  const double loss_sum = sum_over_workers(*strategy_, position_.loss_sum);
  const auto num_examples = static_cast<double>(
      sum_over_workers(*strategy_, static_cast<std::int64_t>(position_.num_examples)));
  return {.mean_loss = loss_sum / std::max(num_examples, 1.0), .time = position_.time};
}

TrainingState Training::state() const {
  TrainingState state = position_;
  state.replica = replicas_[0].state();
  return state;
}

void Training::restore(const TrainingState& state) {
  position_ = state;
  position_.replica.clear();
  std::vector<float> furthest = state.replica;
  if (strategy_->extended().num_workers() > 1) {
    const std::vector<std::pair<std::size_t, std::size_t>> positions =
        all_positions(*options_.cluster, state);
    const auto best = std::max_element(positions.begin(), positions.end());  // the first of them
    if (best->first != position_.epoch) position_ = TrainingState{.epoch = best->first};
    position_.step = best->second;
    furthest = gathered_from(static_cast<int>(best - positions.begin()), furthest);
  }
  for (Replica& replica : replicas_) replica.set_state(furthest);
}

/// `values` of the worker `rank`: a gather to which the others contribute nothing.
std::vector<float> Training::gathered_from(int rank, std::span<const float> values) {
  std::vector<Tensor> parts;
  parts.reserve(num_local_replicas());
  for (std::size_t r = 0; r < num_local_replicas(); ++r) {
    const bool is_source = r == 0 && options_.cluster->rank() == rank;
    const std::span<const float> part = is_source ? values : values.first(0);
    parts.push_back(Tensor::copy_of(part, Shape{part.size()}, options_.devices[r]));
  }
  const Tensor all = strategy_->gather(PerReplica(parts), /*axis=*/0);
  const std::span<const float> gathered = all.span<const float>();
  return {gathered.begin(), gathered.end()};
}

double Training::test_accuracy() {
  std::vector<std::size_t> examples(data_.test.size());
  std::iota(examples.begin(), examples.end(), std::size_t{0});
  const std::vector<std::size_t> correct = strategy_->run([&](ReplicaContext& context) {
    const std::size_t id = local_id(context);
    return replicas_[id].count_correct(data_.test, part(examples, id));
  });
  const std::size_t local = std::accumulate(correct.begin(), correct.end(), std::size_t{0});
  const std::int64_t sum = sum_over_workers(*strategy_, static_cast<std::int64_t>(local));
  return static_cast<double>(sum) / static_cast<double>(examples.size());
}

std::vector<float> Training::weights(std::size_t replica) const {
  std::vector<float> all;
  for (const std::shared_ptr<DistributedVariable>& variable : variables_) {
    const std::span<const float> part =
        variable->components().values()[replica].span<const float>();
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::vector<std::uint64_t> Training::checksums() {
  std::vector<Tensor> own;
  own.reserve(num_local_replicas());
  for (std::size_t r = 0; r < num_local_replicas(); ++r) {
    const std::uint64_t value = checksum(weights(r));
    own.push_back(Tensor::copy_of(std::span(&value, 1), Shape{1}, options_.devices[r]));
  }
  const Tensor all = strategy_->gather(PerReplica(own), /*axis=*/0);
  const std::span<const std::uint64_t> values = all.span<const std::uint64_t>();
  return {values.begin(), values.end()};
}

std::vector<std::size_t> Training::pack_sizes_bytes() const {
  std::vector<std::size_t> sizes;
  for (std::size_t pack = 0; pack < bucketer_->num_packs(); ++pack) {
    std::size_t size_bytes = 0;
    for (const std::size_t p : bucketer_->pack(pack)) {
      size_bytes += gradients_[p].values()[0].size_bytes();
    }
    sizes.push_back(size_bytes);
  }
  return sizes;
}

std::uint64_t checksum(std::span<const float> weights) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const float weight : weights) {
    const auto bits = std::bit_cast<std::uint32_t>(weight);
    for (unsigned shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ ((bits >> shift) & 0xFFU)) * 0x100000001B3U;
    }
  }
  return hash;
}

}  // namespace crossdevice::train
