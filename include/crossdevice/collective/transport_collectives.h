// SPDX-License-Identifier: Apache-2.0
/// The engine of workers that reach each other by messages alone: schedules over a transport.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "crossdevice/collective/collective_request.h"
#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/transport.h"
#include "crossdevice/core/export.h"
#include "crossdevice/device/tensor.h"

namespace crossdevice {

/// Ranks    collective: every worker makes the same calls in the same order, with the same ops, dtypes and numbers of elements.
/// Memory   host tensors. From 1 MiB on they are sent and received where they lie; smaller ones travel side by side through a buffer of 32 MiB
///          at most. Nothing is allocated once batches as large have run before.
/// Errors   UnavailableError (a worker is gone), AbortedError, DeadlineExceededError (names who did not come), InternalError (workers make different calls;
///          says which), on every worker that is in the call, and before an output byte is written where calls differ. Then all memory but
///          outputs that are inputs is as it was (inputs_intact() says so), and the object is broken: every later call says since when.
/// Order    a batch's bits depend on the algorithm and so on sizes, but for `deterministic`: then every element's values are combined by rank, each
///          worker's own before.
/// Threads  one at a time. All work is done on the calling thread.
/// Cost     a batch of up to 2 KiB: 1 round, everybody sends everything to everybody. Else 2(n - 1)/n S bytes each way; 2 rounds up to kRingBytes, in which
///          everybody talks to everybody, a ring's 2(n - 1) above. Before outputs are written where they lie, ceil(log2 n) rounds of
///          messages without bytes make sure that all mean the same.
class CROSSDEVICE_EXPORT TransportCollectives {
 public:
  static constexpr std::size_t kRingBytes = std::size_t{1} << 20;

  /// Collective. `transport` connects the members of `cluster`, which carries what errors say.
  TransportCollectives(std::shared_ptr<Cluster> cluster, std::unique_ptr<Transport> transport);
  ~TransportCollectives();
  TransportCollectives(const TransportCollectives&) = delete;
  TransportCollectives& operator=(const TransportCollectives&) = delete;

  /// outputs = op(all workers' inputs), for each value.
  void all_reduce(const CollectiveRequest& request, std::span<const CollectiveValue> values);
  /// `output` = this rank's part of op(all inputs), which are num_ranks times as long.
  void reduce_scatter(const CollectiveRequest& request, const Tensor& input, const Tensor& output);
  /// `output` = all inputs by rank; num_ranks times as long.
  void all_gather(const CollectiveRequest& request, const Tensor& input, const Tensor& output);
  /// `tensor` = the root's.
  void broadcast(const CollectiveRequest& request, const Tensor& tensor, int root);
  /// On the root `output` = op(all inputs); elsewhere it is not looked at.
  void reduce(const CollectiveRequest& request, const Tensor& input, const Tensor& output,
              int root);
  /// On the root `output` = all inputs by rank; elsewhere it is not looked at.
  void gather(const CollectiveRequest& request, const Tensor& input, const Tensor& output,
              int root);
  /// Returns when all have called it.
  void barrier(const CollectiveRequest& request);

  /// Shows `tensors` to the others and `use` everybody's, by rank: [rank][tensor]. They may be read until `use` returns. Every worker shows any
  /// number of tensors of any shape. What `use` throws is thrown when the operation has ended.
  ///
  /// Cost     all tensors of all workers are held in memory at once.
  template <class Use>
  void share(const CollectiveRequest& request, std::span<const Tensor> tensors, Use use) {
    use(share_all(request, tensors));
  }

  /// Payload bytes and messages so far.
  [[nodiscard]] TransportCounters counters() const;

 private:
  struct State;
  [[nodiscard]] std::vector<std::vector<RemoteTensor>> share_all(const CollectiveRequest& request,
                                                                 std::span<const Tensor> tensors);
  std::unique_ptr<State> state_;
};

}  // namespace crossdevice
