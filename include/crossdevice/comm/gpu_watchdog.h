// SPDX-License-Identifier: Apache-2.0
/// Watches what was launched on GPUs, because nobody waits for it: deadlines, CUDA's errors, NCCL's errors.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>

#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/core/dtype.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/export.h"
#include "crossdevice/core/inline_vector.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/gpu_event.h"

namespace crossdevice::detail {

/// Who hears how an operation has ended.
class CROSSDEVICE_EXPORT FailureListener {
 public:
  FailureListener() = default;
  FailureListener(const FailureListener&) = delete;
  FailureListener& operator=(const FailureListener&) = delete;
  virtual ~FailureListener() = default;
  /// Called on the watchdog's thread: must be quick, must neither wait nor launch.
  virtual void operation_failed(std::exception_ptr error) = 0;
  /// Called by who enqueues, before watch(), for each part of an operation, with its number. `clique`: whose failure is the operation's; may be null.
  virtual void operation_enqueued(std::uint64_t /*sequence*/,
                                  const std::shared_ptr<NcclClique>& /*clique*/) {}
  /// Called on the watchdog's thread: such a part has come to its end. Must be quick.
  virtual void operation_completed(std::uint64_t /*sequence*/) {}
};

/// A few moments, which need no memory of their own.
class GpuEvents : public InlineVector<GpuEvent, 8> {
 public:
  GpuEvents() = default;
  GpuEvents(std::initializer_list<GpuEvent> events) {
    for (const GpuEvent& event : events) push_back(event);
  }
};

struct WatchedOperation {
  OperationRecord record{};
  std::string detail{};  ///< after the record, where messages name it
  std::size_t size_bytes = 0;
  std::optional<DType> dtype{};  ///< nothing: several, or not known
  /// Nothing or 0: no deadline.
  std::optional<double> timeout_seconds{};
  GpuEvent start{};  ///< the clock starts when this has come
  /// Not never(): the moment when the timeout is over, whenever the clock has started.
  Deadline deadline = Deadline::never();
  GpuEvents ends{};
  std::shared_ptr<NcclClique> clique{};  ///< may be null
  /// Called at most once, on the watchdog's thread: must be quick, must neither wait nor launch.
  std::function<void(std::exception_ptr)> failed{};
  /// The same, for those who make many: a listener takes no memory with each operation. May be null.
  std::shared_ptr<FailureListener> listener{};
  /// Of `ends`, in their order; empty: the clique's.
  Devices devices{};
  /// Operations of one clique with equal streams come to an end in their order, so that only the first is asked about. Null: nothing is known of that.
  CudaStream stream = nullptr;
  /// Set: a launch, which has come to its end when `*launches_over` has reached `launch`. It has no `ends`, and is in the flight record only if it fails. The listener
  /// keeps this alive, and must make the launch return.
  const std::atomic<std::uint64_t>* launches_over = nullptr;
  std::uint64_t launch = 0;
  /// Asked before it fails by its deadline; null: the clique's, if any.
  std::shared_ptr<StallWitness> witness{};
  /// Whether its inputs are as they were, however it ends: what its errors say.
  bool inputs_intact = false;
};

/// Until its ends have come. A failure breaks the clique, with it fails everything else that is watched on it, and writes the flight record
/// (flight_record.h): DeadlineExceededError "all_reduce #12 (1 value, 64 MiB) timed out after 5 s: waiting for GPU:2"; what CUDA reports; what NCCL
/// reports; what broke the clique elsewhere.
///
/// Time     looks every eighth of the shortest time that is left, but every 1 to 100 ms; sleeps when nothing is watched. The clock starts when the
///          watchdog sees that `start` has come.
/// Cost     about a microsecond, and in steady state no allocation but the caller's own. One thread for the process, started by the first call.
/// Errors   ResourceExhaustedError: no thread; the operation is not watched. After shutdown() nothing is watched.
/// Threads  any; may be called while launch locks are held.
CROSSDEVICE_EXPORT void watch(WatchedOperation operation);

/// Puts one that failed before it could be watched, while it was enqueued, into the flight record, and writes that. Throws nothing.
CROSSDEVICE_EXPORT void record_failed_launch(const WatchedOperation& operation,
                                             const std::exception_ptr& error) noexcept;

/// Looks at once, so that what has come to its end lets go of its clique.
CROSSDEVICE_EXPORT void look_at_watched();

/// Ends the watchdog, as shutdown() does, but waits for its thread until the deadline at most; not where it is the calling one.
CROSSDEVICE_EXPORT void await_end_of_watchdog(const Deadline& deadline) noexcept;

/// Whether the calling thread is the watchdog's.
[[nodiscard]] bool is_watchdog_thread() noexcept;

}  // namespace crossdevice::detail
