// SPDX-License-Identifier: Apache-2.0
/// Training that goes on with the workers that are left when one fails.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "crossdevice/core/error.h"

#include "train/training.h"

namespace crossdevice::train {

/// What the end of a worker means for a training.
enum class WhenAWorkerFails : bool { END, GO_ON };

struct ElasticOptions {
  WhenAWorkerFails when_one_fails = WhenAWorkerFails::END;
  int min_workers = 0;  ///< how many go on, at least; 0: more than half of those that were there
  /// Told on every worker that goes on: why, and from where. The ranks that have failed are also called what they were at the start.
  std::function<void(const Training& training, const std::string& why)> on_recovery =
      [](const Training&, const std::string&) {};
};

/// Makes the training, and makes it anew with a rebuilt cluster when a member is gone or has given up: weights and velocities come from the worker that
/// has come furthest, so at most the step under way is computed again, with its examples spread over fewer replicas.
///
/// Ranks    collective, among those that are left.
class ElasticTraining {
 public:
  /// `data` must outlive this.
  ElasticTraining(const DataSet& data, TrainingOptions options, ElasticOptions elastic);

  /// Calls `work` with the training until it returns; it is called again after each failure that others survive, and goes on from training.epoch().
  ///
  /// Errors   what `work` throws where that is no failure of others, or not to be survived. As Training, Cluster::rebuild. The failure itself, where
  ///          nothing has changed since the last: no worker has gone and no step been made.
  void run(const std::function<void(Training&)>& work);

 private:
  [[nodiscard]] bool can_recover(const OpError& error) const;
  void recover(const OpError& error);
  [[nodiscard]] Rebuilt rebuild() const;
  [[nodiscard]] std::string text_of(const OpError& error) const;

  const DataSet& data_;
  TrainingOptions options_;
  ElasticOptions elastic_;
  std::vector<int> first_ranks_;  // of the cluster's members; empty: of the first cluster
  std::uint64_t epoch_ = 1;       // the cluster's
  std::unique_ptr<Training> training_;
  std::optional<TrainingState> state_;  // where training_ was when it failed
};

}  // namespace crossdevice::train
