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
#include "crossdevice/device/device.h"
#include "crossdevice/device/tensor.h"

namespace crossdevice {

struct CROSSDEVICE_EXPORT CommunicatorOptions {
  /// Deadline of a call; nothing: CROSSDEVICE_DEFAULT_TIMEOUT, or else none.
  std::optional<double> timeout_seconds = std::nullopt;
  /// The bits of a reduction depend on values and ranks alone; see CollectiveRequest.
  bool deterministic = false;
};

/// Workers on one machine reach into each other's memory, or send messages where the system does not let them, as between different users; others send messages. On several machines an all-reduce does both where has_two_levels() says so:
/// none has more than twice as many workers as another. Everything else is done by messages among all workers.
///
/// Ranks    collective: every worker makes the same calls in the same order, on communicators that were made in the same order, with equal ops, dtypes and
///          numbers of elements.
/// Shapes   tensors count by their elements; shapes are not compared.
/// GPUs     what carries a call is decided by what all workers know, never by where one has its tensors, so that no two take different ways:
///          - where all workers have named a GPU at the construction, and NCCL serves all of these (has_nccl()), it does the call on them;
///          - where one has named a host, or none, or NCCL fails to start on one (which is said once), everything is done on hosts;
///          - also where has_nccl() is true, hosts do what NCCL does not do with our arithmetic (16-bit integers, MIN and MAX of floats, MEAN of integers,
///          products of complex numbers; comm/nccl_api.h), what is `deterministic`, and barrier(). What is only moved goes by NCCL whatever its dtype.
///          A tensor that lies elsewhere than its call is done is copied there, and the result back, and the call waits for that.
/// Memory   tensors on hosts or GPUs. Pool memory (Tensor::empty) is read where it lies; views of other memory too, but on one machine through a copy. An
///          output may be exactly its input (all_reduce, reduce), or the input the part of the output (all_gather, gather), or the output the part of the
///          input (reduce_scatter), that is this rank's. Any other overlap is a ValueError.
/// Order    on hosts: complete on return. By NCCL: returns after enqueueing on the tensors' streams, and results are ready there in stream order; such calls may be
///          captured into a graph, all workers' or none.
/// Errors   as CollectiveEngine. ResourceExhaustedError: this process has no memory for the call. By NCCL: what goes wrong later (a deadline, whose clock
///          starts when the call reaches the head of its stream, a worker that is gone, CUDA's or NCCL's error) is thrown by the next call and by check();
///          then the communicator is broken, and every later call says so. Where calls differ, InternalError on every worker, beside the calls, or with
///          CROSSDEVICE_STRICT=1 before anything is launched; where the difference keeps some in NCCL and others on hosts, these end what the whole job
///          waits for (Cluster::abort_collective_ops), with the same text.
/// Threads  calls are serialised. Threads that communicate at the same time use a communicator each.
/// Cost     see SharedCollectives, TransportCollectives and TwoLevelCollectives. By NCCL one call of it, and one kernel more for MEAN; gather() is one message
///          from each worker. Each call is counted, and a bar of a timeline, by its name (core/counters.h, core/trace.h).
class CROSSDEVICE_EXPORT Communicator {
 public:
  /// Of hosts. Collective. `deadline`: for all that the members do here together.
  ///
  /// Errors   of SharedMemoryGroup and make_message_transport. ResourceExhaustedError: this worker lacks memory, descriptors or threads.
  explicit Communicator(std::shared_ptr<Cluster> cluster,
                        const Deadline& deadline = meeting_deadline());
  /// The same, with the device on which this worker has its tensors; others may name hosts, or none. NCCL has as much time of its own as a construction.
  ///
  /// Errors   (also) ValueError, on all workers: a device that is not present, one GPU in two workers. DeadlineExceededError, on all workers: NCCL has not made its
  ///          communicators in time, says on whom that was late. FailedPreconditionError: NCCL does not serve all GPUs, and CROSSDEVICE_STRICT=1 forbids the
  ///          fall-back.
  Communicator(std::shared_ptr<Cluster> cluster, const Device& device,
               const Deadline& deadline = meeting_deadline());
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int rank() const;
  [[nodiscard]] int num_workers() const;
  /// Whether NCCL carries calls; equal on all workers.
  [[nodiscard]] bool has_nccl() const;
  /// Throws what has gone wrong on GPUs since; to be called after the caller's own wait for a stream.
  void check() const;

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
  /// Returns when all have called it. What was enqueued on GPUs may still be under way.
  void barrier(const CommunicatorOptions& options = {});

  /// The hosts' engine, for batches and for requests with names of their own. Not while another thread makes a call.
  [[nodiscard]] CollectiveEngine& engine();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace crossdevice
