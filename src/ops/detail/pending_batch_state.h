// SPDX-License-Identifier: Apache-2.0
/// What a PendingBatch and the thread that works for it share.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "crossdevice/device/work.h"
#include "crossdevice/ops/destinations.h"
#include "crossdevice/ops/values.h"

#include "ops/detail/gpu_completion.h"
#include "ops/detail/operation_queue.h"
#include "ops/detail/streamed_pack.h"

namespace crossdevice::detail {

/// Two views of every output: the caller's handles in `results`, whose readiness says that the operation still writes them, and aliases
/// without that mark in `pairs`, which the operation itself works with (else it would wait for itself).
///
/// Ordering: results[i] of a sparse value is written before complete_item(i), whose release pairs with wait_for_item's acquire.
struct PendingBatchState {
  static constexpr std::size_t kNoItem = static_cast<std::size_t>(-1);

  PendingBatchState(std::shared_ptr<OperationQueue> operation_queue, std::size_t num_items)
      : queue(std::move(operation_queue)),
        work(std::make_shared<WorkState>(num_items)),
        results(num_items),
        released(num_items) {}

  /// Value `item` has its result: its tensors become ready, then its completion is announced. Once per item counts.
  void complete_item(std::size_t item) {
    if (release(item)) work->complete_item(item);
  }
  /// The result of a sparse value, whose buffers nobody could make beforehand.
  void set_result(std::size_t item, const Mirrored& result) {
    if (results[item].empty()) results[item] = result;
  }
  /// Which value of the operation this pair is; kNoItem for one that a hook made.
  [[nodiscard]] std::size_t item_of(const ValueDestinationPair& pair) const {
    const std::less<const ValueDestinationPair*> before;
    const ValueDestinationPair* begin = pairs.data();
    if (before(&pair, begin) || !before(&pair, begin + pairs.size())) return kNoItem;
    return static_cast<std::size_t>(&pair - begin);
  }
  /// For the thread of the operation.
  [[nodiscard]] std::shared_ptr<GpuCompletion> gpu_completion() {
    if (gpu == nullptr) gpu = std::make_shared<GpuCompletion>(queue);
    return gpu;
  }
  /// All is enqueued: when its results are there on GPUs the operation has ended there.
  void add_gpu_ends() {
    const auto add = [this](const Tensor& tensor) {
      if (!tensor.device().is_host()) gpu_completion()->add_end(tensor);
    };
    for (const Mirrored& result : results) {
      for (const Tensor& tensor : result.values()) add(tensor);
      for (const IndexedSlices& slices : result.slices()) {
        add(slices.values);
        add(slices.indices);
      }
    }
  }
  /// Ends the operation: no tensor stays marked as in flight.
  void finish(std::exception_ptr error) {
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (error == nullptr) {
        complete_item(i);
      } else {
        release(i);
      }
    }
    // Who asked it to stop knows: the object's next call has nothing to report.
    if (error != nullptr && !work->stop_requested()) queue->keep_error(error);
    work->finish(std::move(error));
  }
  /// The operation reads or writes `tensor`, which one of another object's, on another stream, may still write.
  void come_behind(const Tensor& tensor) {
    Stream* const stream = tensor.readiness().stream();
    if (stream == nullptr) return;
    if (std::find(behind.begin(), behind.end(), stream) == behind.end()) behind.push_back(stream);
  }
  /// Marks the dense results as in flight; before the operation is enqueued on `stream`. (Sparse ones have no values().)
  void hold_results(Stream& stream) {
    for (const Mirrored& result : results) {
      for (const Tensor& tensor : result.values()) {
        come_behind(tensor);
        tensor.readiness().add(&stream);
      }
    }
  }
  void release_all() {
    for (std::size_t i = 0; i < results.size(); ++i) release(i);
  }
  bool release(std::size_t item) {
    if (released[item].exchange(true)) return false;
    for (const Tensor& tensor : results[item].values()) tensor.readiness().remove();
    return true;
  }

  std::shared_ptr<OperationQueue> queue;
  std::shared_ptr<WorkState> work;
  std::vector<ValueDestinationPair> pairs;  ///< what the operation reads and where it writes
  std::deque<Mirrored> outputs;   ///< what the destinations of `pairs` borrow; stable addresses
  std::vector<Mirrored> results;  ///< what value(i) returns
  std::shared_ptr<GpuCompletion> gpu;  ///< null: no GPU has a part in it; constant once it is done
  std::vector<Stream*> behind;         ///< what has been enqueued there comes before the operation
  std::vector<std::atomic<bool>> released;    ///< per item
  std::optional<StreamedPack> streamed_pack;  ///< before the operation is enqueued
};

}  // namespace crossdevice::detail
