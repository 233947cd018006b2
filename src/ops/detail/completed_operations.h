// SPDX-License-Identifier: Apache-2.0
/// Which operation of an object has completed last on this worker, for Cluster::rebuild(): on GPUs that is after the call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace crossdevice::detail {

/// Reports the number of an operation when it and those before it are over: their calls have returned, and the parts that they have enqueued on GPUs have come to
/// their end. Those that have failed are passed over.
///
/// Why no number goes back: while there are operations whose parts are awaited, numbers are reported under the lock, in order. Once there are none, only the holder of
/// the object's turn reports, who adds them too: it sees has_parts_ change after the last report that was made under the lock.
///
/// Cost     a load and a store where nothing is awaited. In steady state no allocation.
/// Threads  begin_part(), end() and give_up(): the holder of the turn. end_part(), stop(): any.
class CompletedOperations {
 public:
  /// Before the first operation. Null, as at first: nobody wants to know.
  void set_target(std::shared_ptr<std::atomic<std::uint64_t>> target) {
    target_ = std::move(target);
  }
  /// Something that the operation does is awaited from now on.
  void begin_part(std::uint64_t sequence);
  void end_part(std::uint64_t sequence);
  /// It adds no part any more, and is over as soon as those that there are.
  void end(std::uint64_t sequence) {
    if (target_ == nullptr) return;
    if (has_parts_.load(std::memory_order_acquire)) return close(sequence, /*counts=*/true);
    target_->store(sequence, std::memory_order_relaxed);
  }
  /// It has failed, however its parts end.
  void give_up(std::uint64_t sequence) {
    if (target_ == nullptr || !has_parts_.load(std::memory_order_acquire)) return;
    close(sequence, /*counts=*/false);
  }
  /// A part has failed: nothing is reported any more.
  void stop();

 private:
  struct Operation {
    std::uint64_t sequence = 0;
    std::size_t num_parts = 0;  ///< that are awaited
    bool is_closed = false;
    bool counts = false;
  };
  [[nodiscard]] Operation& operation(std::uint64_t sequence);
  void close(std::uint64_t sequence, bool counts);
  void report();

  std::shared_ptr<std::atomic<std::uint64_t>> target_;
  std::atomic<bool> has_parts_{false};
  std::mutex mutex_;                   // guards what follows
  std::vector<Operation> operations_;  // in ascending order
  bool is_stopped_ = false;
};

}  // namespace crossdevice::detail
