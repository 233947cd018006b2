// SPDX-License-Identifier: Apache-2.0
/// Reduce, broadcast and gather across devices. TF counterpart: tf.distribute.CrossDeviceOps.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "crossdevice/core/deadline.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/export.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/ops/communication_options.h"
#include "crossdevice/ops/destinations.h"
#include "crossdevice/ops/pending_batch.h"
#include "crossdevice/ops/values.h"

namespace crossdevice {

class Cluster;

namespace detail {
class OperationQueue;
class ActiveOperation;
struct StreamedPack;
}  // namespace detail

/// One element of a batch with its output buffers.
struct CROSSDEVICE_EXPORT ValueOutputPair {
  PerReplica value;
  PerReplica outputs;
};

/// Turns one value per replica into one equal value on every destination.
///
/// Shapes   every replica has the same dtype and shape, and the result has them too (MEAN of integers: float32 for up to 16 bits, else
///          float64). gather: equal but along `axis`, where they are concatenated in replica order. Sparse values are concatenated.
/// Memory   reads `value`, never writes it; results are new buffers from the destinations' pools, in the destination's device order. The
///          *_into forms write the caller's buffers: each is exactly one of the inputs (in place) or overlaps none of them.
/// Order    host devices: complete on return; *_async forms return at once.
/// Errors   ValueError, before anything is touched: no components, dtypes or shapes that differ, a combination that is_supported(op, dtype)
///          excludes, absent or duplicate destination devices, read-only or overlapping outputs, invalid options.
///          DeadlineExceededError: the deadline passed first; see inputs_intact(). UnimplementedError: gather of sparse values.
/// Threads  calls on one object are serialised, asynchronous ones too, in the order in which they were made. An asynchronous call waits for those of other
///          objects that write its tensors; what another object's still reads must not be written, where one of the two is among workers. The object
///          outlives the handles of its asynchronous operations.
/// TF       results are always Mirrored; in-place and asynchronous forms, MIN, MAX and PROD are additions.
class CROSSDEVICE_EXPORT CrossDeviceOps {
 public:
  virtual ~CrossDeviceOps();
  CrossDeviceOps(const CrossDeviceOps&) = delete;
  CrossDeviceOps& operator=(const CrossDeviceOps&) = delete;

  [[nodiscard]] Mirrored reduce(ReduceOp op, const PerReplica& value,
                                const Destinations& destinations,
                                const CommunicationOptions& options = {});
  void reduce_into(ReduceOp op, const PerReplica& value, const DistributedValues& outputs,
                   const CommunicationOptions& options = {});

  /// Results in input order; any mix of dtypes, dense and sparse; an empty list gives an empty list.
  [[nodiscard]] std::vector<Mirrored> batch_reduce(ReduceOp op,
                                                   std::span<const ValueDestinationPair> pairs,
                                                   const CommunicationOptions& options = {});
  [[nodiscard]] std::vector<Mirrored> batch_reduce(
      ReduceOp op, std::initializer_list<ValueDestinationPair> pairs,
      const CommunicationOptions& options = {}) {
    return batch_reduce(op, std::span<const ValueDestinationPair>(pairs.begin(), pairs.size()),
                        options);
  }
  /// Every value in place: what trainers call.
  void batch_reduce_into(ReduceOp op, std::span<const PerReplica> values,
                         const CommunicationOptions& options = {});
  void batch_reduce_into(ReduceOp op, std::span<const ValueOutputPair> pairs,
                         const CommunicationOptions& options = {});

  /// One copy per device of the destination.
  [[nodiscard]] Mirrored broadcast(const Tensor& tensor, const Destinations& destinations);
  [[nodiscard]] Mirrored broadcast(const IndexedSlices& slices, const Destinations& destinations);
  void broadcast_into(const Tensor& tensor, const DistributedValues& outputs);

  /// Concatenates along `axis` (0 <= axis < rank, rank >= 1).
  [[nodiscard]] Mirrored gather(const PerReplica& value, const Destinations& destinations, int axis,
                                const CommunicationOptions& options = {});
  void gather_into(const PerReplica& value, const DistributedValues& outputs, int axis,
                   const CommunicationOptions& options = {});

  /// The asynchronous forms check their arguments at once and throw what they find; the rest happens behind the returned handle.
  [[nodiscard]] PendingBatch reduce_async(ReduceOp op, const PerReplica& value,
                                          const Destinations& destinations,
                                          const CommunicationOptions& options = {});
  [[nodiscard]] PendingBatch reduce_into_async(ReduceOp op, const PerReplica& value,
                                               const DistributedValues& outputs,
                                               const CommunicationOptions& options = {});
  [[nodiscard]] PendingBatch batch_reduce_async(ReduceOp op,
                                                std::span<const ValueDestinationPair> pairs,
                                                const CommunicationOptions& options = {});
  [[nodiscard]] PendingBatch batch_reduce_into_async(ReduceOp op,
                                                     std::span<const PerReplica> values,
                                                     const CommunicationOptions& options = {});
  [[nodiscard]] PendingBatch broadcast_async(const Tensor& tensor,
                                             const Destinations& destinations);
  [[nodiscard]] PendingBatch gather_async(const PerReplica& value, const Destinations& destinations,
                                          int axis, const CommunicationOptions& options = {});

  /// Of what size packs are that leave one after the other as they are ready, where nobody says: a GradientBucketer's.
  [[nodiscard]] virtual std::size_t streaming_pack_bytes() const;

  /// Throws what an asynchronous operation of this object failed with, unless its wait() has thrown it already. Every other call does so too.
  void check();

 protected:
  /// `timeout_seconds`: of calls whose options have none; nothing: CROSSDEVICE_DEFAULT_TIMEOUT.
  explicit CrossDeviceOps(std::optional<double> timeout_seconds = std::nullopt);

  /// The hooks. Arguments are checked already. Every public form (in place, batch, asynchronous) reaches them; a batch reaches
  /// batch_reduce_implementation, whose default calls reduce_implementation for each pair, so overriding reduce_implementation alone is enough to see
  /// everything in classes that do not batch. destinations.outputs() names the buffers of in-place forms; make_result() does the
  /// right thing for both.
  virtual Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                         const Destinations& destinations,
                                         const CommunicationOptions& options) = 0;
  virtual std::vector<Mirrored> batch_reduce_implementation(
      ReduceOp op, std::span<const ValueDestinationPair> pairs,
      const CommunicationOptions& options);
  virtual Mirrored broadcast_implementation(const Tensor& tensor, const Destinations& destinations);
  virtual Mirrored gather_implementation(const PerReplica& value, const Destinations& destinations,
                                         int axis, const CommunicationOptions& options);
  /// Whether a gather's result holds components of other workers too. How long it is along the axis is known to the hook alone then, which checks
  /// output buffers by it.
  [[nodiscard]] virtual bool gathers_from_other_workers() const { return false; }
  /// This worker will not make calls that others wait for, and `text` says why: ends what they wait for, and every later call. Called outside of operations, by
  /// any thread; does not wait. Nothing where there are no others.
  virtual void give_up_for_all(const std::string& /*text*/) {}

  /// For hooks: the operation that runs now - its record for messages, and its deadline, which calls that hooks make on this object have too.
  [[nodiscard]] const OperationRecord& current_operation() const;
  [[nodiscard]] Deadline current_deadline() const;
  /// Errors   DeadlineExceededError or CancelledError: the operation must not go on.
  void require_time_left() const;
  /// For the library's own ops.
  [[nodiscard]] detail::ActiveOperation& active_operation() const;
  /// For those, before their first operation: calls wait for the cluster's other workers, so that asynchronous ones have a thread of this object's, and what
  /// they wait for on GPUs ends with the job.
  void set_waits_for_workers(Cluster& cluster);
  /// For those, before their first operation: the cluster's rebuild() goes by which of them have completed.
  void set_reports_to(const Cluster& cluster);

 private:
  friend class GradientBucketer;  // reduces packs that are told apart, and gives up
  struct Async;                   // what the asynchronous forms share
  [[nodiscard]] PendingBatch reduce_pack_async(ReduceOp op, std::span<const PerReplica> values,
                                               const CommunicationOptions& options,
                                               const detail::StreamedPack& pack);
  std::shared_ptr<detail::OperationQueue> queue_;
};

}  // namespace crossdevice
