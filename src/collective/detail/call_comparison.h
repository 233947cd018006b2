// SPDX-License-Identifier: Apache-2.0
/// Whether workers make the same calls where no message passes between them that could say so: over the control plane, beside the calls.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/group_operation.h"
#include "crossdevice/comm/nccl_clique.h"

namespace crossdevice::detail {

/// The n-th call of each worker is compared with the n-th of all others, once all have made it: on a thread that sleeps until there is something to say, or, where the
/// caller asks for it, before the call.
///
/// A worker that waits in an exchange waits for those that have made fewer calls. So it is here that is known who is missing where a call does not come to
/// its end: the witness of the clique gives the exchange up, and everybody who waits in it hears from the chief who has not come.
///
/// Errors   InternalError, the same on every worker: "workers make different calls: rank 0 ...; rank 1 ...", with those whose call is not that of most
///          (crossdevice/core/outliers.h).
/// Threads  calls are serialised by the caller.
class CallComparison {
 public:
  /// What is to happen when calls differ, once, on the comparison's thread; must neither wait nor destroy this. All are called under a lock that the destructor
  /// takes.
  struct OnDifference {
    std::function<void(const std::exception_ptr&)> is_found;
    /// Behind what every worker does when it is found; where one does not come to that, some seconds later.
    std::function<void(const std::exception_ptr&)> is_known;
    /// Instead: the exchange has been given up, with who is missing (DeadlineExceededError). `is_own`: by this worker's witness, so that those who are missing are
    /// still to be told. On the control plane's thread, which hears of aborts only afterwards.
    std::function<void(const std::exception_ptr&, bool is_own)> is_given_up;
  };

  /// Ranks    collective.
  CallComparison(const std::shared_ptr<Cluster>& cluster, OnDifference on_difference);
  /// Ends the thread; waits for a moment where it hears of the others, and leaves it to itself where they do not come.
  ~CallComparison();
  CallComparison(const CallComparison&) = delete;
  CallComparison& operator=(const CallComparison&) = delete;

  /// This worker makes that call; nobody waits.
  ///
  /// Cost     some 100 ns, and in steady state no allocation; the first call starts the thread.
  void add(const GroupOperation& call);
  /// The same call, of which all workers have `told` each other, by rank. All use this one for it, or all use the other.
  void compare_now(const GroupOperation& call, std::span<const std::string> told);

  /// Who can say which worker is missing. Outlives this, and then says nothing.
  [[nodiscard]] std::shared_ptr<StallWitness> witness() const;

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);
  std::shared_ptr<State> state_;
};

}  // namespace crossdevice::detail
