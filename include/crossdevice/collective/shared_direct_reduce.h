// SPDX-License-Identifier: Apache-2.0
/// The engine of workers on one machine: each reads what it reduces where it lies in the others' memory, and writes the results into it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/collective/collective_request.h"
#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/group_operation.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/export.h"
#include "crossdevice/device/tensor.h"

namespace crossdevice {

/// Ranks    collective: every worker makes the same calls in the same order.
/// Memory   host tensors. Memory from a pool is read and written where it lies, and so is of other memory what its own worker reduces; what the others
///          reduce of that goes through buffers from the pool, which costs a copy in and one out. Small batches travel in slots of the group's own memory.
/// Errors   ValueError: tensors that do not fit together, or one that is on no host. Else as SharedMemoryGroup; inputs_intact() is false when outputs that are inputs may have
///          been written. Before an error is thrown while a worker that is not proven dead may still write, every block it may write to
///          is moved out of its reach (see MemoryPool::move_segment); from then on the blocks of such segments are copied like other memory.
/// Order    inputs are combined by rank, then in their order here: the bits do not depend on which worker reduces what.
/// Threads  one at a time.
/// Cost     with W workers, N inputs and M outputs of S bytes each: a W-th of (N W + M W) S bytes of memory traffic per worker, and two meetings
///          (one for small batches) of some 0.2 us.
class CROSSDEVICE_EXPORT SharedDirectReduce {
 public:
  /// Up to here a batch travels in the slots: one meeting instead of two, but every worker reduces all of it.
  static constexpr std::size_t kInlineBytes = std::size_t{4} << 10;

  /// Collective. `names` and errors as SharedMemoryGroup's.
  explicit SharedDirectReduce(std::shared_ptr<Cluster> cluster,
                              const std::vector<RankInfo>& names = {},
                              const Deadline& deadline = meeting_deadline());
  ~SharedDirectReduce();
  SharedDirectReduce(const SharedDirectReduce&) = delete;
  SharedDirectReduce& operator=(const SharedDirectReduce&) = delete;

  /// outputs = op(all workers' inputs), for each value.
  void all_reduce(const CollectiveRequest& request, std::span<const CollectiveValue> values);

  /// Shows `tensors` to the others and `use` everybody's, by rank: [rank][tensor]. They may be read until `use` returns. Every worker shows any
  /// number of tensors of any shape, but `info` is equal. What `use` throws is thrown when the operation has ended; a deadline that it has missed ends
  /// the operation for all.
  template <class Use>
  void share(const CollectiveRequest& request, const GroupOperationInfo& info,
             std::span<const Tensor> tensors, Use use) {
    const std::vector<std::vector<RemoteTensor>> all = begin_share(request, info, tensors);
    try {
      use(all);
    } catch (const DeadlineExceededError& error) {
      fail_share(error);
    } catch (...) {
      end_share(request);
      throw;
    }
    end_share(request);
  }

  /// This worker has missed the deadline of `request` while it did something itself, not while it waited.
  ///
  /// Errors   DeadlineExceededError, always: names this worker and what it `did`.
  [[noreturn]] void throw_late(const CollectiveRequest& request, std::string_view did) const;

  /// As SharedMemoryGroup's.
  void while_waiting(std::function<void()> look);
  void give_up(const std::string& text);

 private:
  struct State;
  std::vector<std::vector<RemoteTensor>> begin_share(const CollectiveRequest& request,
                                                     const GroupOperationInfo& info,
                                                     std::span<const Tensor> tensors);
  void end_share(const CollectiveRequest& request);
  [[noreturn]] void fail_share(const DeadlineExceededError& error);
  std::unique_ptr<State> state_;
};

}  // namespace crossdevice
