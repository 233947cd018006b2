// SPDX-License-Identifier: Apache-2.0
/// Steps, epochs and tests of data-parallel training.
#include "train/training.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

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

/// One scalar per replica, combined over all replicas.
template <class T>
T sum_over_replicas(Strategy& strategy, std::span<const T> values) {
  const Devices& devices = strategy.extended().worker_devices();
  std::vector<Tensor> components;
  components.reserve(values.size());
  for (std::size_t r = 0; r < values.size(); ++r) {
    components.push_back(Tensor::copy_of(values.subspan(r, 1), Shape{}, devices[r]));
  }
  return strategy.reduce(ReduceOp::SUM, PerReplica(components), std::nullopt)
      .template span<const T>()[0];
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
                                        .deterministic = options.deterministic}});
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
  std::vector<double> losses = strategy_->run([&](ReplicaContext& context) {
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
  return {.losses = std::move(losses), .time = split_step(moments, log_.take())};
}

EpochResult Training::run_epoch(
    std::size_t epoch, const std::function<void(std::size_t, std::size_t, double)>& on_step) {
  const std::vector<std::size_t> order = epoch_order(data_.train.size(), options_.seed, epoch);
  const std::size_t steps = (order.size() + options_.batch_size - 1) / options_.batch_size;
  const double all_steps = static_cast<double>(steps * options_.epochs);
  EpochResult result;
  std::vector<double> losses(num_local_replicas());
  for (std::size_t step = 0; step < steps; ++step) {
    const std::size_t begin = step * options_.batch_size;
    const std::size_t count = std::min(options_.batch_size, order.size() - begin);
    const double left = 1 - static_cast<double>(epoch * steps + step) / all_steps;
    const std::span<const std::size_t> batch = std::span(order).subspan(begin, count);
    const StepResult done = run_step(batch, options_.rate * static_cast<float>(left));
    std::transform(losses.begin(), losses.end(), done.losses.begin(), losses.begin(), std::plus());
    result.time += done.time;
    const double local = std::accumulate(done.losses.begin(), done.losses.end(), 0.0);
    on_step(step + 1, steps,
            local / static_cast<double>(std::max(local_count(batch), std::size_t{1})));
  }
  result.mean_loss = sum_over_replicas(*strategy_, std::span<const double>(losses)) /
                     static_cast<double>(order.size());
  return result;
}

double Training::test_accuracy() {
  std::vector<std::size_t> examples(data_.test.size());
  std::iota(examples.begin(), examples.end(), std::size_t{0});
  const std::vector<std::int64_t> correct = strategy_->run([&](ReplicaContext& context) {
    const std::size_t id = local_id(context);
    return static_cast<std::int64_t>(replicas_[id].count_correct(data_.test, part(examples, id)));
  });
  const std::int64_t sum = sum_over_replicas(*strategy_, std::span<const std::int64_t>(correct));
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
