// SPDX-License-Identifier: Apache-2.0
/// The all-reduce whose bits do not depend on which replicas share a worker.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "crossdevice/collective/collective_request.h"
#include "crossdevice/collective/schedule_executor.h"

#include "collective/detail/connected_programs.h"
#include "collective/detail/replica_rows.h"
#include "collective/detail/transport_group.h"

namespace crossdevice::detail {

/// A shuffle in which no worker combines its own replicas before: every rank owns a part of each row, gets everybody's elements of it, combines them in the
/// order of ranks and replicas in one pass, and sends the result to all.
///
/// Memory   everything passes through that of ReplicaRows; outputs are written when a row's result is there.
/// Cost     2 rounds a row (3 where a ring gathers); n workers with R replicas of S bytes each send (n - 1)/n (R + 1) S bytes.
/// Threads  one at a time.
class ReplicaExchange {
 public:
  /// Both live longer.
  ReplicaExchange(TransportGroup& group, ConnectedPrograms& programs)
      : group_(group), programs_(programs), rows_(group.num_ranks(), group.rank()) {}

  /// During an operation of the group. `values` are checked.
  void run(const CollectiveRequest& request, std::span<const CollectiveValue> values,
           bool is_in_place);
  /// Lets go of the caller's tensors.
  void clear();

 private:
  void scatter_blocks(const Deadline& deadline);
  void gather_results(const Deadline& deadline);

  TransportGroup& group_;
  ConnectedPrograms& programs_;
  ReplicaRows rows_;
  std::vector<std::shared_ptr<const ScheduleProgram>> running_;
  std::vector<ScheduleJob> jobs_;
};

}  // namespace crossdevice::detail
