// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/gradient_bucketer.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/collective/pack.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/exception_text.h"

#include "ops/detail/operation_queue.h"
#include "ops/detail/streamed_pack.h"
#include "ops/detail/validation.h"

namespace crossdevice {
namespace {

/// Whether other workers have had a part in what went wrong: then they have heard of it.
bool is_shared(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const InternalError&) {
    return true;  // calls that differ
  } catch (const OpError& failure) {
    return std::any_of(failure.culprits().begin(), failure.culprits().end(),
                       [](const RankInfo& culprit) { return culprit.rank >= 0; });
  } catch (...) {
    return false;
  }
}

bool is_abort(const std::exception_ptr& error) {
  if (error == nullptr) return false;
  try {
    std::rethrow_exception(error);
  } catch (const AbortedError&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

/// A step: every gradient becomes ready once; a pack leaves when it is complete and all packs before it have left.
///
/// Where one does not leave, other workers wait for it, and of this one the next pack that they meet would be another. Twice it is seen to that those are not
/// added up: whoever ends such a step tells the others, whose packs fail then, and those of this worker too; and each pack says in which place it stands, which
/// is compared with what the others say before anything is written (by NCCL, unless strict, soon after). The first tells at once, and why. The second needs
/// nobody to come here again.
struct GradientBucketer::State {
  struct Bucket {
    std::vector<std::size_t> gradients;  // in pack order
    std::vector<PerReplica> values;      // the same, as the ops take them
    std::size_t num_missing = 0;         // gradients of it that are not ready in this step
    std::optional<PendingBatch> pending;
  };
  struct Gradient {
    std::size_t bucket = 0;
    std::size_t num_replicas = 0;
    std::size_t num_missing = 0;  // replicas that have not said ready in this step
    std::vector<bool> replica_ready;
  };

  CrossDeviceOps& ops;
  BucketerOptions options;
  std::mutex mutex;  // guards everything below
  std::vector<Bucket> buckets;
  std::vector<Gradient> gradients;
  std::size_t num_left = 0;  // buckets that have left
  std::exception_ptr error;  // of the next, which could not
  std::uint64_t step = 0;
  std::optional<std::uint64_t> number;  // once a pack has left, or should have
  const int num_exceptions = std::uncaught_exceptions();

  State(CrossDeviceOps& cross_device_ops, std::span<const PerReplica> values,
        const BucketerOptions& bucketer_options);
  void begin_step();
  void count_down(std::size_t index);
  void send_complete_buckets();
  void send(Bucket& bucket);
  void number_it() {
    if (!number.has_value()) number = ops.queue_->draw_bucketer();
  }
  void tell_of(const std::exception_ptr& failure, bool has_left) noexcept;
  void give_up_for_all(const std::string& text) noexcept;
  [[nodiscard]] bool has_begun() const;
  [[nodiscard]] std::optional<std::size_t> first_missing() const;
  Gradient& at(std::size_t index);
};

GradientBucketer::State::State(CrossDeviceOps& cross_device_ops, std::span<const PerReplica> values,
                               const BucketerOptions& bucketer_options)
    : ops(cross_device_ops), options(bucketer_options) {
  options.communication.validate();
  if (values.empty()) throw ValueError("a GradientBucketer needs at least one gradient");
  std::vector<TensorSize> sizes;
  std::vector<ValueDestinationPair> pairs;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i].is_sparse()) {
      throw ValueError(
          fmt::format("gradient {} is sparse: a GradientBucketer reduces in place, "
                      "which sparse values cannot",
                      i));
    }
    pairs.push_back({values[i], Destinations::into(values[i])});
  }
  (void)detail::require_batch_reducible(options.op, pairs);
  for (const PerReplica& value : values) {
    sizes.push_back({value.dtype(), value.values()[0].num_elements()});
  }
  const Int64 bytes_per_pack = options.communication.bytes_per_pack == 0
                                   ? Int64(ops.streaming_pack_bytes())
                                   : options.communication.bytes_per_pack;
  gradients.resize(values.size());
  for (const Pack& pack : make_packs(sizes, {.bytes_per_pack = bytes_per_pack})) {
    Bucket bucket;
    for (const ElementRange& range : pack.ranges) {
      gradients[range.tensor].bucket = buckets.size();
      gradients[range.tensor].num_replicas = values[range.tensor].size();
      bucket.gradients.push_back(range.tensor);
      bucket.values.push_back(values[range.tensor]);
    }
    buckets.push_back(std::move(bucket));
  }
  begin_step();
}

void GradientBucketer::State::begin_step() {
  for (Bucket& bucket : buckets) {
    bucket.num_missing = bucket.gradients.size();
    bucket.pending.reset();
  }
  for (Gradient& gradient : gradients) {
    gradient.num_missing = gradient.num_replicas;
    gradient.replica_ready.assign(gradient.num_replicas, false);
  }
  num_left = 0;
  error = nullptr;
}

GradientBucketer::State::Gradient& GradientBucketer::State::at(std::size_t index) {
  if (index >= gradients.size()) {
    throw ValueError(fmt::format("gradient {} of {}", index, gradients.size()));
  }
  Gradient& gradient = gradients[index];
  if (gradient.num_missing == 0) {
    throw FailedPreconditionError(
        fmt::format("gradient {} was ready already in this step: wait() ends a step", index));
  }
  return gradient;
}

/// All replicas of gradient `index` are ready.
void GradientBucketer::State::count_down(std::size_t index) {
  gradients[index].num_missing = 0;
  --buckets[gradients[index].bucket].num_missing;
  send_complete_buckets();
}

void GradientBucketer::State::send_complete_buckets() {
  // Behind one that could not leave none does: the others still wait for that one, and would take the next for it.
  while (error == nullptr && num_left < buckets.size() && buckets[num_left].num_missing == 0) {
    try {
      send(buckets[num_left]);
      ++num_left;
    } catch (...) {
      // ready() runs in the middle of back-propagation; the step's wait() is where errors belong.
      error = std::current_exception();
      tell_of(error, /*has_left=*/false);
    }
  }
}

/// What befell a pack that has left, or the next one, if nobody else knows.
void GradientBucketer::State::tell_of(const std::exception_ptr& failure, bool has_left) noexcept {
  if (is_shared(failure)) return;
  try {
    const std::string what =
        has_left
            ? fmt::format("a pack of step {} of a GradientBucketer failed", step)
            : fmt::format("step {} pack {} of a GradientBucketer could not leave", step, num_left);
    give_up_for_all(what + ": " + detail::exception_text(failure));
  } catch (...) {  // no memory for the text: the others wait until they find out
  }
}

void GradientBucketer::State::send(Bucket& bucket) {
  number_it();
  bucket.pending.emplace(
      ops.reduce_pack_async(options.op, bucket.values, options.communication,
                            {.bucketer = *number, .step = step, .pack = std::uint64_t{num_left}}));
}

/// A pack of this step has not left, nor will it.
void GradientBucketer::State::give_up_for_all(const std::string& text) noexcept {
  number_it();  // were this bucketer replaced, another number: the new one's packs are not those that the others wait for
  try {
    ops.give_up_for_all(text);
  } catch (...) {  // no memory for the news: the others wait until they find out
  }
}

/// Whether the other workers may count on this step.
bool GradientBucketer::State::has_begun() const {
  return std::any_of(gradients.begin(), gradients.end(), [](const Gradient& gradient) {
    return gradient.num_missing < gradient.num_replicas;
  });
}

std::optional<std::size_t> GradientBucketer::State::first_missing() const {
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].num_missing > 0) return i;
  }
  return std::nullopt;
}

GradientBucketer::GradientBucketer(CrossDeviceOps& ops, std::span<const PerReplica> gradients,
                                   BucketerOptions options)
    : state_(std::make_unique<State>(ops, gradients, options)) {}

// Without the mutex: nobody is in the object any more.
GradientBucketer::~GradientBucketer() {
  const std::optional<std::size_t> missing = state_->first_missing();
  if (!missing.has_value() || !state_->has_begun() || state_->error != nullptr) return;
  const bool is_thrown_past = std::uncaught_exceptions() > state_->num_exceptions;
  try {
    state_->give_up_for_all(fmt::format(
        "a GradientBucketer was destroyed{} in step {}, in which gradient {} was not ready",
        is_thrown_past ? " by an exception" : "", state_->step, *missing));
  } catch (...) {  // no memory for the text: the others wait until they find out
  }
}

void GradientBucketer::ready(std::size_t index) {
  const std::lock_guard lock(state_->mutex);
  (void)state_->at(index);
  state_->count_down(index);
}

void GradientBucketer::ready(std::size_t index, std::size_t replica) {
  const std::lock_guard lock(state_->mutex);
  State::Gradient& gradient = state_->at(index);
  if (replica >= gradient.replica_ready.size()) {
    throw ValueError(fmt::format("replica {} of gradient {}, which has {}", replica, index,
                                 gradient.replica_ready.size()));
  }
  if (gradient.replica_ready[replica]) {
    throw FailedPreconditionError(
        fmt::format("gradient {} of replica {} was ready already in this step", index, replica));
  }
  gradient.replica_ready[replica] = true;
  if (gradient.num_missing == 1) {
    state_->count_down(index);
  } else {
    --gradient.num_missing;
  }
}

GradientBucketer::InCompletionOrder GradientBucketer::in_completion_order() const {
  const std::lock_guard lock(state_->mutex);
  if (const std::optional<std::size_t> missing = state_->first_missing()) {
    throw FailedPreconditionError(fmt::format(
        "gradient {} is not ready: in_completion_order() would wait for it forever", *missing));
  }
  return InCompletionOrder(this);
}

// Packs are served in the order in which they left, so position p lies in the first pack whose running total exceeds it. The buckets
// do not change between in_completion_order() and wait(), which both belong to one thread.
bool GradientBucketer::InCompletionOrder::wait_for(std::size_t position, std::size_t& index) const {
  for (const State::Bucket& bucket : bucketer_->state_->buckets) {
    if (position >= bucket.gradients.size()) {
      position -= bucket.gradients.size();
      continue;
    }
    if (!bucket.pending.has_value()) return false;
    const std::optional<std::size_t> item = bucket.pending->completed(position);
    if (item.has_value()) index = bucket.gradients[*item];
    return item.has_value();
  }
  return false;
}

void GradientBucketer::wait() {
  const std::lock_guard lock(state_->mutex);
  std::exception_ptr error = state_->error;
  std::string missing;
  if (const std::optional<std::size_t> gradient = state_->first_missing()) {
    missing = fmt::format("step {} of a GradientBucketer ended although gradient {} was not ready",
                          state_->step, *gradient);
  }
  // First: another worker may be in the same plight, and what has left here may wait for what never leaves there.
  if (error == nullptr && !missing.empty()) state_->give_up_for_all(missing);
  // What this worker can mend comes before what it has heard of such another.
  if (!missing.empty() && is_abort(error)) error = nullptr;
  for (State::Bucket& bucket : state_->buckets) {
    if (!bucket.pending.has_value()) continue;
    try {
      bucket.pending->wait_until_enqueued();
    } catch (const AbortedError&) {
      // With a gradient missing it is what this worker has just done, or no worse.
      if (error == nullptr && missing.empty()) error = std::current_exception();
    } catch (...) {
      if (error != nullptr) continue;
      error = std::current_exception();
      state_->tell_of(error, /*has_left=*/true);
    }
  }
  ++state_->step;
  state_->begin_step();
  if (error != nullptr) std::rethrow_exception(error);
  if (!missing.empty()) throw FailedPreconditionError(missing);
}

std::size_t GradientBucketer::num_packs() const { return state_->buckets.size(); }

std::span<const std::size_t> GradientBucketer::pack(std::size_t index) const {
  if (index >= num_packs()) {
    throw ValueError(fmt::format("pack {} of {}", index, num_packs()));
  }
  return state_->buckets[index].gradients;
}

}  // namespace crossdevice
