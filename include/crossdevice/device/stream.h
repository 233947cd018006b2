// SPDX-License-Identifier: Apache-2.0
/// Ordered queues of work on a device, and marks in them. One interface for host and CUDA devices.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "crossdevice/core/deadline.h"
#include "crossdevice/core/export.h"
#include "crossdevice/device/device.h"

struct CUstream_st;

namespace crossdevice {

namespace detail {
class StreamState;
class EventState;
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

/// A moment in a stream: everything enqueued before it has finished.
///
/// Threads  any.
class CROSSDEVICE_EXPORT Event {
 public:
  /// Whether the moment has come; true for an event never recorded.
  [[nodiscard]] bool has_completed() const;
  /// Blocks until then.
  ///
  /// Errors   DeadlineExceededError.
  void wait(const Deadline& deadline) const;

 private:
  friend class Stream;
  std::shared_ptr<detail::EventState> state_;
};

/// An own stream on a device: what is enqueued runs in order; different streams run concurrently.
///
/// On hosts a stream is a queue served by one thread of its own, started when the first task comes.
/// Errors   what a task throws ends up in the next synchronize() of this stream, once; later tasks run all the same.
/// Threads  any. The destructor runs what was enqueued to its end.
class CROSSDEVICE_EXPORT Stream {
 public:
  /// `name` shows in debuggers (at most 15 characters count).
  Stream(const Device& device, std::string_view name);
  ~Stream();
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;

  /// Runs `task` on the host, in stream order.
  ///
  /// Errors   FailedPreconditionError: after shutdown(), or in a child of fork().
  void launch(std::function<void()> task);
  /// Marks this moment.
  [[nodiscard]] Event record();
  /// What is enqueued from now on runs after `event`.
  void wait(const Event& event);
  /// Blocks until everything enqueued so far has finished.
  ///
  /// Errors   DeadlineExceededError; or what a task threw.
  void synchronize(const Deadline& deadline);
  /// Whether the calling thread is the one that serves this stream (waiting for it there would never end).
  [[nodiscard]] bool is_current() const;

 private:
  std::shared_ptr<detail::StreamState> state_;
};

}  // namespace crossdevice
