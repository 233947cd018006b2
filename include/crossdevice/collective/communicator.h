// SPDX-License-Identifier: Apache-2.0
/// What the workers of a cluster do together with tensors, without replicas and strategies: the floor that the ops stand on.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "crossdevice/collective/collective_engine.h"
#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/export.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/tensor.h"

namespace crossdevice {

struct CROSSDEVICE_EXPORT CommunicatorOptions {
  /// Deadline of a call; nothing: CROSSDEVICE_DEFAULT_TIMEOUT, or else none.
  std::optional<double> timeout_seconds = std::nullopt;
  /// The bits of a reduction depend on values and ranks alone; see CollectiveRequest.
  bool deterministic = false;
};

/// Workers on one machine reach into each other's memory, others send messages. On several machines with equally many workers each an all-reduce does both;
/// everything else, and where numbers are unequal all, is done by messages among all workers.
///
/// Ranks    collective: every worker makes the same calls in the same order, on communicators that were made in the same order, with equal ops, dtypes and
///          numbers of elements.
/// Shapes   tensors count by their elements; shapes are not compared.
/// Memory   tensors on hosts or GPUs, also on some workers these and on others those. What lies on a GPU goes through the host, there and back, and the call
///          waits for the tensors' streams (NCCL is used by CollectiveAllReduce). Pool memory (Tensor::empty) is read where it lies; views of other memory too, but on one machine through a copy. An
///          output may be exactly its input (all_reduce), or the input the part of the output, or the output the part of the input, that is
///          this rank's (all_gather, gather; reduce_scatter); else they do not overlap.
/// Errors   as CollectiveEngine.
/// Threads  calls are serialised. Threads that communicate at the same time use a communicator each.
/// Cost     see SharedCollectives, TransportCollectives and TwoLevelCollectives.
class CROSSDEVICE_EXPORT Communicator {
 public:
  /// Collective. `deadline`: for all that the members do here together.
  ///
  /// Errors   of SharedMemoryGroup and make_message_transport.
  explicit Communicator(std::shared_ptr<Cluster> cluster,
                        const Deadline& deadline = meeting_deadline());
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int rank() const;
  [[nodiscard]] int num_workers() const;

  /// output = op(everybody's inputs). Output: result_dtype(op, dtype), as many elements.
  void all_reduce(ReduceOp op, const Tensor& input, const Tensor& output,
                  const CommunicatorOptions& options = {});
  /// In place; not for the mean of integers.
  void all_reduce(ReduceOp op, const Tensor& tensor, const CommunicatorOptions& options = {}) {
    all_reduce(op, tensor, tensor, options);
  }
  /// output = part rank() of op(everybody's inputs), which are num_workers() times as long.
  void reduce_scatter(ReduceOp op, const Tensor& input, const Tensor& output,
                      const CommunicatorOptions& options = {});
  /// output = everybody's inputs by rank.
  void all_gather(const Tensor& input, const Tensor& output,
                  const CommunicatorOptions& options = {});
  /// tensor = the root's.
  void broadcast(const Tensor& tensor, int root, const CommunicatorOptions& options = {});
  /// On the root output = op(everybody's inputs); elsewhere it is not looked at.
  void reduce(ReduceOp op, const Tensor& input, const Tensor& output, int root,
              const CommunicatorOptions& options = {});
  /// On the root output = everybody's inputs by rank; elsewhere it is not looked at.
  void gather(const Tensor& input, const Tensor& output, int root,
              const CommunicatorOptions& options = {});
  /// Returns when all have called it.
  void barrier(const CommunicatorOptions& options = {});

  /// The engine, for batches and for requests with names of their own. Not while another thread makes a call.
  [[nodiscard]] CollectiveEngine& engine();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace crossdevice
