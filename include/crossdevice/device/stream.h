// SPDX-License-Identifier: Apache-2.0
/// Ordered queues of work on a device, and marks in them. One interface for host and CUDA devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "crossdevice/core/deadline.h"
#include "crossdevice/core/export.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/gpu_event.h"

struct CUstream_st;

namespace crossdevice {

namespace detail {
class StreamState;
class GpuStreamState;
}  // namespace detail

/// The caller's own stream, borrowed. There is no default stream.
class StreamView {
 public:
  StreamView() = delete;
  [[nodiscard]] CUstream_st* cuda() const { return cuda_; }
  friend bool operator==(StreamView a, StreamView b) { return a.cuda_ == b.cuda_; }

 private:
  explicit StreamView(CUstream_st* cuda) : cuda_(cuda) {}
  friend StreamView from_cuda(CUstream_st* stream);
  CUstream_st* cuda_;
};

/// A cudaStream_t of the caller's; one that is null at run time (torch's default stream) is accepted.
[[nodiscard]] inline StreamView from_cuda(CUstream_st* stream) { return StreamView(stream); }
StreamView from_cuda(std::nullptr_t) = delete;

/// A moment in a stream: everything enqueued before it has finished. A copy is the same moment; it may outlive the stream.
///
/// Threads  any.
class CROSSDEVICE_EXPORT Event {
 public:
  /// Whether the moment has come; true for an event never recorded.
  [[nodiscard]] bool has_completed() const;
  /// Blocks until then.
  ///
  /// Errors   DeadlineExceededError; FailedPreconditionError: it would never end, because the calling thread is the one that
  ///          serves the stream, or because this process is a child of fork().
  void wait(const Deadline& deadline) const;

 private:
  friend class Stream;
  // At most one of the two: never recorded is complete in both ways.
  std::shared_ptr<detail::StreamState> host_;
  std::uint64_t position_ = 0;  // tasks enqueued before the moment
  detail::GpuEvent gpu_;
};

/// An own stream on a device: what is enqueued runs in order; different streams run concurrently.
///
/// On hosts a stream is a queue served by one thread of its own, started when the first task comes. The thread keeps looking
/// for about 50 us when the queue is empty, then sleeps; the process's signals are blocked in it.
///
/// On GPUs it is a CUDA stream of its own, of the highest priority: view() gives it to tensors, and to the program's kernels. Tasks run on a thread of
/// CUDA's that serves other streams too: they must not call CUDA or use a GPU, and should be short.
/// Memory   a task and what it captured are destroyed as soon as it has run, before it counts as finished.
/// Errors   the first error that tasks throw is kept for the next synchronize() of this stream, which throws it once; later
///          tasks run all the same, and further errors (and one that nobody fetches) are logged.
/// Threads  any. The destructor runs what was enqueued to its end and joins the thread; on GPUs it does not wait, the stream runs to its end by itself
///          (stop() waits). In a child of fork(), and on GPUs after shutdown(), it does nothing.
/// Cost     nothing is allocated once the queue has reached its greatest length, but what std::function needs for the task.
class CROSSDEVICE_EXPORT Stream {
 public:
  /// `name` shows in debuggers (at most 15 characters count).
  ///
  /// Errors   ValueError: the device is not present. What CUDA reports.
  Stream(const Device& device, std::string_view name);
  ~Stream();
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;

  /// Runs `task` on the host, in stream order.
  ///
  /// Errors   ValueError: no task. FailedPreconditionError: after stop(), or in a child of fork(). ResourceExhaustedError:
  ///          the thread could not be started. Nothing is enqueued then.
  void launch(std::function<void()> task);
  /// Marks this moment. Costs no task.
  [[nodiscard]] Event record();
  /// What is enqueued from now on runs after `event`. Streams that wait for each other's events cannot lock up: an event lies behind
  /// what was enqueued before it was recorded, never behind what comes later.
  ///
  /// Errors   as launch(); UnimplementedError: the stream is a GPU's and the event, which has not come, a host's.
  void wait(const Event& event);
  /// Blocks until everything enqueued so far has finished.
  ///
  /// Errors   DeadlineExceededError; what a task threw; FailedPreconditionError as Event::wait.
  void synchronize(const Deadline& deadline);
  /// Runs what was enqueued to its end and joins the thread; launch() throws from then on. May be repeated.
  ///
  /// Errors   FailedPreconditionError: called by the thread that serves this stream. On GPUs also DeadlineExceededError, after
  ///          CROSSDEVICE_DEFAULT_TIMEOUT.
  void stop();
  /// Whether the calling thread is the one that serves this stream (waiting for it there would never end).
  [[nodiscard]] bool is_current() const;
  /// A GPU's stream, lent: what Tensor::view() and Tensor::empty() take. It must outlive the tensors.
  ///
  /// Errors   ValueError: a host's stream.
  [[nodiscard]] StreamView view() const;

 private:
  // One of the two; both null: moved from.
  std::shared_ptr<detail::StreamState> host_;
  std::shared_ptr<detail::GpuStreamState> gpu_;
};

}  // namespace crossdevice
