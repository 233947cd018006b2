// SPDX-License-Identifier: Apache-2.0
/// The threads that carry asynchronous operations forward.
#pragma once

#include "crossdevice/core/export.h"
#include "crossdevice/device/stream.h"

namespace crossdevice {

/// The process's one stream for asynchronous forms of operations that wait for nobody else: they run there one after the other, in the order in which they were
/// launched. Its thread starts with the first of them, sleeps when there are none, and ends with shutdown(): then launch()
/// throws FailedPreconditionError.
///
/// Errors   FailedPreconditionError: the first use, in a child of fork().
/// Threads  any.
[[nodiscard]] CROSSDEVICE_EXPORT Stream& progress_stream();

namespace detail {

/// A stream for asynchronous forms of operations that wait for other workers: of its own for each object, as two objects may be called in another order here than there,
/// and would wait for each other on one thread.
///
/// Memory   streams are used again by later leases, and never destroyed: as many threads as there were leases at once.
/// Threads  any. The destructor waits for nothing; nothing more is launched then.
class CROSSDEVICE_EXPORT ProgressLease {
 public:
  /// Errors   as progress_stream().
  ProgressLease();
  ~ProgressLease();
  ProgressLease(const ProgressLease&) = delete;
  ProgressLease& operator=(const ProgressLease&) = delete;
  /// As progress_stream(), also after shutdown().
  [[nodiscard]] Stream& stream() const { return stream_; }

 private:
  Stream& stream_;
};

/// Whether the calling thread carries asynchronous operations out; it says so of itself.
[[nodiscard]] CROSSDEVICE_EXPORT bool& carries_out_operations();

}  // namespace detail
}  // namespace crossdevice
