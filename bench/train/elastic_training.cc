// SPDX-License-Identifier: Apache-2.0
/// Catches, rebuilds, restores.
#include "train/elastic_training.h"

#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/comm/cluster.h"

namespace crossdevice::train {

ElasticTraining::ElasticTraining(const DataSet& data, TrainingOptions options,
                                 ElasticOptions elastic)
    : data_(data), options_(std::move(options)), elastic_(std::move(elastic)) {}

void ElasticTraining::run(const std::function<void(Training&)>& work) {
  std::optional<std::string> failure;  // to be told when the training goes on
  for (;;) {
    try {
      if (training_ == nullptr) {
        auto training = std::make_unique<Training>(data_, options_);
        // Who has failed before the first step takes part in the others' recovery too.
        if (failure.has_value()) training->restore(state_.value_or(training->state()));
        training_ = std::move(training);
        if (failure.has_value()) elastic_.on_recovery(*training_, *std::exchange(failure, {}));
      }
      return work(*training_);
    } catch (const OpError& error) {
      if (!can_recover(error)) throw;
      failure = text_of(error);
      recover(error);
    }
  }
}

bool ElasticTraining::can_recover(const OpError& error) const {
  if (elastic_.when_one_fails == WhenAWorkerFails::END) return false;
  if (options_.cluster == nullptr || options_.cluster->num_workers() == 1) return false;
  switch (error.code()) {
    case StatusCode::UNAVAILABLE:
    case StatusCode::ABORTED:
    case StatusCode::DEADLINE_EXCEEDED:
    case StatusCode::FAILED_PRECONDITION:  // ops that are broken since one of these
      return true;
    case StatusCode::CANCELLED:
    case StatusCode::UNIMPLEMENTED:
    case StatusCode::RESOURCE_EXHAUSTED:
    case StatusCode::INTERNAL:
      return false;
  }
  return false;  // unreachable: every enumerator returns above
}

void ElasticTraining::recover(const OpError& error) {
  bool has_advanced = false;
  if (training_ != nullptr) {
    TrainingState now = training_->state();
    has_advanced = !state_.has_value() || now.epoch != state_->epoch || now.step != state_->step;
    state_ = std::move(now);
    training_.reset();
  }
  const int num_workers = options_.cluster->num_workers();
  const Rebuilt rebuilt = rebuild();
  if (first_ranks_.empty()) {
    first_ranks_.resize(static_cast<std::size_t>(num_workers));
    std::iota(first_ranks_.begin(), first_ranks_.end(), 0);
  }
  // Those that are left keep their order.
  for (std::size_t i = rebuilt.left_out.size(); i-- > 0;) {
    first_ranks_.erase(first_ranks_.begin() + rebuilt.left_out[i].rank);
  }
  epoch_ = rebuilt.epoch;
  options_.cluster = rebuilt.cluster;
  if (!has_advanced && options_.cluster->num_workers() == num_workers) {
    throw_op_error(error.code(), error.what());
  }
}

Rebuilt ElasticTraining::rebuild() const {
  const int num_workers = options_.cluster->num_workers();
  try {
    return options_.cluster->rebuild(Survivors::ONLY, {.min_workers = elastic_.min_workers});
  } catch (const UnavailableError& error) {
    const int needed = elastic_.min_workers > 0 ? elastic_.min_workers : num_workers / 2 + 1;
    const int left = num_workers - static_cast<int>(error.culprits().size());
    if (left >= needed) throw;
    throw_anew(error, fmt::format("{}; --min-workers {} lets so few go on", error.what(), left),
               error.operation(), error.inputs_intact());
  }
}

/// Since workers have been lost ranks are not what crossdevice-run, say, calls them.
std::string ElasticTraining::text_of(const OpError& error) const {
  std::string text = error.what();
  for (const RankInfo& each : error.culprits()) {
    const auto rank = static_cast<std::size_t>(each.rank);
    if (each.rank < 0 || rank >= first_ranks_.size() || first_ranks_[rank] == each.rank) continue;
    text += fmt::format("; rank {} (of epoch {}; rank {} at the start)", each.rank, epoch_,
                        first_ranks_[rank]);
  }
  return text;
}

}  // namespace crossdevice::train
