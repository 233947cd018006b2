// SPDX-License-Identifier: Apache-2.0
/// A UCX context with one worker.
#pragma once

#include <string>

#include "crossdevice/core/deadline.h"

#include "comm/detail/event_descriptor.h"
#include "comm/detail/ucx_kind.h"
#include "comm/ucx/ucx_library.h"

namespace crossdevice::detail {

/// Threads  one at a time.
class UcxEnd {
 public:
  using Clock = Deadline::Clock;

  /// Errors   UnavailableError.
  UcxEnd();
  ~UcxEnd();
  UcxEnd(const UcxEnd&) = delete;
  UcxEnd& operator=(const UcxEnd&) = delete;

  [[nodiscard]] const UcxLibrary& library() const { return *library_; }
  [[nodiscard]] ucp_worker_h worker() const { return worker_; }
  [[nodiscard]] const std::string& address() const { return address_; }
  /// Until something comes after the worker was armed, or somebody sets `event`, which it empties; at most until then.
  void sleep(const EventDescriptor& event, Clock::time_point until) const;

 private:
  void close() noexcept;
  void require(ucs_status_t status, const char* what);

  const UcxLibrary* library_ = nullptr;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::string address_;
  int descriptor_ = -1;
};

}  // namespace crossdevice::detail
