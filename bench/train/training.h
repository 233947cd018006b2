// SPDX-License-Identifier: Apache-2.0
/// Data-parallel training: a strategy whose replicas, on one worker or many, each compute on a part of every batch and share their gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/tensor.h"
#include "crossdevice/ops/gradient_bucketer.h"
#include "crossdevice/ops/values.h"
#include "crossdevice/strategy/distributed_variable.h"
#include "crossdevice/strategy/strategy.h"

#include "train/communication_log.h"
#include "train/data_set.h"
#include "train/replica.h"
#include "train/time_split.h"

namespace crossdevice::train {

struct TrainingOptions {
  Devices devices;                   ///< of this worker
  std::shared_ptr<Cluster> cluster;  ///< the workers that train together; null: this one alone
  std::string cross_device_ops = "auto";
  std::size_t bytes_per_pack = std::size_t{8} << 10U;
  bool deterministic = false;
  bool grouping_independent = false;
  std::vector<std::size_t> hidden_widths = {256};
  std::size_t epochs = 5;
  std::size_t batch_size = 128;  ///< global: of all replicas together; at most all images count
  float rate = 0.05F;            ///< of the first step; falls linearly to 0 at the end
  float momentum = 0.9F;
  std::uint64_t seed = 1;
};

struct EpochResult {
  double mean_loss =
      0;  ///< over the examples of the workers that are there at the end of the epoch
  TimeSplit time;
};

/// What one worker knows of a training, for others to go on from: which step comes next, and weights and velocities as they are before it. Between
/// two steps all workers know the same; when one has failed, some may be a step ahead of others.
struct TrainingState {
  std::size_t epoch = 0;
  std::size_t step = 0;
  std::vector<float> replica{};  ///< Replica::state(), the same on all replicas

  // Of this worker's part of the epoch.
  double loss_sum = 0;
  std::size_t num_examples = 0;
  TimeSplit time{};
};

/// Every batch's gradient is the mean over the whole batch: each replica computes its examples' share of it and the shares are summed, so
/// the number of replicas, and how they are spread over workers, changes the weights by rounding only.
///
/// Ranks    all but what is const is collective: every worker makes the same calls in the same order.
class Training {
 public:
  /// `data` must outlive this.
  ///
  /// Errors   ArgumentError: batch size 0; ops that work in one process only, with several workers. ValueError: as the strategies, GradientBucketer.
  Training(const DataSet& data, const TrainingOptions& options);

  /// One pass over the training images; the rest of it where the epoch has been begun already. `on_step(done, steps, loss)` is called after each step, with the mean loss of this worker's examples.
  EpochResult run_epoch(
      std::size_t epoch,
      const std::function<void(std::size_t done, std::size_t steps, double loss)>& on_step);
  /// Whether this worker reports.
  [[nodiscard]] bool is_chief() const { return strategy_->extended().should_checkpoint(); }
  [[nodiscard]] std::size_t num_workers() const { return strategy_->extended().num_workers(); }
  /// The epoch that has been begun last.
  [[nodiscard]] std::size_t epoch() const { return position_.epoch; }
  /// Also after run_epoch() has thrown.
  [[nodiscard]] TrainingState state() const;
  /// Goes on from the state of the worker that has come furthest; of the others' their own share of the epoch's loss is kept.
  ///
  /// Errors   std::invalid_argument: the state is of another network.
  void restore(const TrainingState& state);

  /// Share of the test images that are classified right, 0 to 1.
  [[nodiscard]] double test_accuracy();

  /// The weights of this worker's replica `replica`, in parameter order, as one list.
  [[nodiscard]] std::vector<float> weights(std::size_t replica) const;
  /// Of every replica's weights, by replica id.
  [[nodiscard]] std::vector<std::uint64_t> checksums();
  /// Of all workers.
  [[nodiscard]] std::size_t num_replicas() const { return strategy_->num_replicas_in_sync(); }
  [[nodiscard]] std::size_t num_local_replicas() const { return options_.devices.size(); }
  /// Bytes of each pack of gradients, in the order in which they leave.
  [[nodiscard]] std::vector<std::size_t> pack_sizes_bytes() const;

 private:
  struct StepResult {
    double loss_sum = 0;  // of this worker's examples
    TimeSplit time;
  };
  StepResult run_step(std::span<const std::size_t> batch, float rate);
  /// The part of `all` that is this worker's replica `local_id`'s.
  [[nodiscard]] std::span<const std::size_t> part(std::span<const std::size_t> all,
                                                  std::size_t local_id) const;
  /// How many of `all` are this worker's.
  [[nodiscard]] std::size_t local_count(std::span<const std::size_t> all) const;
  [[nodiscard]] std::vector<float> gathered_from(int rank, std::span<const float> values);
  [[nodiscard]] std::size_t local_id(const ReplicaContext& context) const;

  const DataSet& data_;
  TrainingOptions options_;
  CommunicationLog log_;
  std::unique_ptr<Strategy> strategy_;
  std::vector<std::shared_ptr<DistributedVariable>> variables_;
  std::vector<PerReplica> gradients_;
  std::vector<Replica> replicas_;
  std::unique_ptr<GradientBucketer> bucketer_;
  TrainingState position_;  // but for the replica's
};

/// FNV-1a over the bits of the weights: equal checksums mean equal bits.
[[nodiscard]] std::uint64_t checksum(std::span<const float> weights);

}  // namespace crossdevice::train
