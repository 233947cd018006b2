// SPDX-License-Identifier: Apache-2.0
/// How an asynchronous operation ends on GPUs, for those who wait for that on the host.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "crossdevice/comm/gpu_watchdog.h"
#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/device/cuda_api.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/gpu_event.h"
#include "crossdevice/device/tensor.h"
#include "crossdevice/device/wait_limit.h"

#include "ops/detail/operation_queue.h"

namespace crossdevice::detail {

/// What the watchdog finds is kept here and, once, by the operation's object: see OperationQueue::keep_error.
///
/// Threads  add_end() that of the operation, before anybody waits; the others any.
class GpuCompletion final : public FailureListener, public WaitInterrupter {
 public:
  explicit GpuCompletion(std::shared_ptr<OperationQueue> queue) : queue_(std::move(queue)) {}

  /// The operation ends when the tensor's stream has done what it has been given so far. Nothing for hosts' tensors, which are complete, and for streams that
  /// are captured, whose time nobody knows.
  void add_end(const Tensor& tensor);
  /// Blocks until the GPUs have come to the end.
  ///
  /// Errors   what the watchdog has found or finds meanwhile, every time; DeadlineExceededError: `deadline` passed first, and the work goes on.
  void wait(const Deadline& deadline) const;
  /// What the watchdog has found so far; null: nothing.
  [[nodiscard]] std::exception_ptr error() const;
  /// As wait()'s caller must know it: throws that.
  void throw_if_interrupted() const override;

  void operation_enqueued(std::uint64_t sequence,
                          const std::shared_ptr<NcclClique>& clique) override;
  void operation_completed(std::uint64_t sequence) override;
  void operation_failed(std::exception_ptr error) override;

 private:
  struct End {
    const GpuDevice* device;
    CudaStream stream;
    GpuEvent event;
  };
  void wait_for_ends(const Deadline& deadline) const;
  void require_verdict(const Deadline& deadline) const;
  [[nodiscard]] std::exception_ptr what_broke_a_clique() const;

  const std::shared_ptr<OperationQueue> queue_;
  std::vector<End> ends_;
  mutable std::mutex mutex_;  // guards what follows
  mutable std::condition_variable changed_;
  std::vector<std::weak_ptr<NcclClique>> cliques_;  // of parts that are watched
  std::size_t num_watched_ = 0;                     // parts of the operation
  std::size_t num_over_ = 0;                        // of these, as the watchdog says
  std::exception_ptr error_;                        // the first
};

}  // namespace crossdevice::detail
