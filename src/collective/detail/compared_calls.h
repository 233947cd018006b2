// SPDX-License-Identifier: Apache-2.0
/// Calls of workers of which NCCL carries some and hosts the others, compared in one sequence: a call that goes the one way here and the other there is found.
#pragma once

#include <exception>
#include <memory>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/gpu_watchdog.h"
#include "crossdevice/comm/group_operation.h"
#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/device/device.h"

#include "collective/detail/launch_order.h"

namespace crossdevice::detail {

/// Communicators among workers, and the place that their launches have among those of others.
struct OrderedClique {
  std::unique_ptr<LaunchOrder> order;  // null: this worker is alone
  std::shared_ptr<NcclClique> clique;
};
/// As NcclClique::among(), which has its turn among launches itself: it launches, and NCCL waits in it.
[[nodiscard]] OrderedClique make_ordered_clique(const std::shared_ptr<Cluster>& cluster,
                                                const Devices& local, const Deadline& deadline);

/// Every call is compared once, whichever way it goes, so that the n-th comparison is about the same call on all workers: beside the calls, or, where they have an order, and
/// with CROSSDEVICE_STRICT=1, before them.
///
/// Order    a call for hosts is compared when all that can fail on this worker alone, before others count on it, is done.
/// Errors   where calls differ, on every worker, what CallComparison says: the clique is broken with it. Who is in a call of NCCL, or in none, hears it from the
///          clique and by its listener, who is on hosts gets it thrown by that call. Where some are on hosts, these wait for workers that do not come, so
///          what all wait for is ended (Cluster::abort_collective_ops).
/// Threads  calls are serialised by the caller.
/// Cost     as CallComparison; on hosts two locks more. With an order, before the call: what LaunchOrder says.
class ComparedCalls {
 public:
  /// `order` and `clique` outlive this. Collective; of one worker alone nothing is compared, and `order` is null.
  ComparedCalls(const std::shared_ptr<Cluster>& cluster, LaunchOrder* order, NcclClique& clique);
  ~ComparedCalls();
  ComparedCalls(const ComparedCalls&) = delete;
  ComparedCalls& operator=(const ComparedCalls&) = delete;

  /// This worker makes that call, by NCCL, and launches it while it has `turn`. `listener`: hears, until the next call, that this or an earlier one differs; may
  /// be null.
  ///
  /// Errors   as NcclClique::require_usable(), of which the caller has made sure. With an order also DeadlineExceededError, and what else ends a wait for the other
  ///          workers; the clique is broken then.
  void compare(const GroupOperation& call, const Deadline& deadline,
               std::shared_ptr<FailureListener> listener, LaunchOrder::Turn& turn);

  /// The same on hosts. One that throws has counted for nothing, else one of the two below ends it.
  ///
  /// Errors   as NcclClique::require_usable().
  void begin_on_hosts(const GroupOperation& call, const Deadline& deadline,
                      std::shared_ptr<FailureListener> listener);
  /// The rest of a call, of which NCCL carries a part, and with it the comparison.
  void continue_on_hosts();
  /// The call has ended as it does on all workers.
  ///
  /// Errors   that it, or an earlier one, differs from the others' has been found meanwhile.
  void end_on_hosts();
  /// It has failed here, while others may count on it: the clique breaks, and they are told, once. Throws `error`, or, where it comes of calls that differ, that.
  ///
  /// Cost     where hosts themselves have found a difference, up to 5 s: as soon as all have called, the comparison says more.
  [[noreturn]] void fail_on_hosts(const std::exception_ptr& error);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace crossdevice::detail
