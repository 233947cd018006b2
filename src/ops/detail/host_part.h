// SPDX-License-Identifier: Apache-2.0
/// What the workers' engine does of a call on hosts, where NCCL does other calls, or parts of this one.
#pragma once

#include <cstdint>
#include <exception>
#include <span>

#include "crossdevice/collective/collective_request.h"
#include "crossdevice/collective/nccl_reduce.h"
#include "crossdevice/core/error.h"
#include "crossdevice/ops/cross_device_ops.h"
#include "crossdevice/ops/values.h"

#include "ops/detail/active_operation.h"

namespace crossdevice::detail {

/// Compares the call with what the others make in its place, perhaps through NCCL, which no message of the engine's could tell: once, just before the engine's
/// first operation. What fails before that is no call yet, as without NCCL; what fails later, on this worker alone, breaks the object on all.
///
/// Threads  that of the operation.
/// Cost     without NCCL nothing.
class HostPart {
 public:
  struct Call {
    NcclReducer* nccl = nullptr;  ///< null: all that these workers do is done on hosts
    ActiveOperation& active;
    const CollectiveRequest& request;  ///< of the whole call
    /// What is compared besides the request. None: workers may have any number of elements.
    std::span<const PerReplica> value{};
    std::span<const ValueDestinationPair> batch{};
    /// NCCL has done a part of the call, and has compared it.
    bool is_compared = false;
    /// Parts that others may wait for, and as many as there were before the call.
    const std::uint64_t& num_unknown;
    std::uint64_t num_unknown_before = 0;
  };
  explicit HostPart(const Call& call) : call_(call) {}

  [[nodiscard]] ActiveOperation& active() const { return call_.active; }

  /// Before each operation of the engine.
  ///
  /// Errors   as NcclReducer::begin_on_hosts().
  void begin() {
    if (call_.nccl != nullptr && !has_begun_) compare();
  }
  /// `work()`, which calls begin().
  ///
  /// Errors   those of `work`; InternalError, on every worker: calls differ.
  template <class Work>
  void run(Work work) {
    if (call_.nccl == nullptr) return work();
    try {
      work();
    } catch (...) {
      fail(std::current_exception());
    }
    end();
  }

 private:
  void compare();
  void end();
  [[noreturn]] void fail(const std::exception_ptr& error);

  Call call_;
  bool has_begun_ = false;
};

}  // namespace crossdevice::detail
