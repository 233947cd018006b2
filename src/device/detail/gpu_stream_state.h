// SPDX-License-Identifier: Apache-2.0
/// The CUDA stream behind a Stream on a GPU, and the host's tasks in it.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "crossdevice/core/deadline.h"
#include "crossdevice/device/cuda_api.h"
#include "crossdevice/device/gpu_event.h"

#include "device/detail/stream_errors.h"

namespace crossdevice::detail {

class GpuDevice;

/// CUDA calls one host function for each task, in stream order, so each takes the front of one queue. Task and call are enqueued under one lock, so the
/// two orders are one. The queue has another lock, because CUDA may let an enqueueing wait until earlier tasks have run.
///
/// It lives, by a reference to itself, until its last task has run. Where the GPU fails CUDA calls no function any more, and the tasks that are left
/// stay for ever: their captures may belong to whoever waits for them.
class GpuStreamState : public std::enable_shared_from_this<GpuStreamState> {
 public:
  GpuStreamState(GpuDevice& gpu, std::string name);
  GpuStreamState(const GpuStreamState&) = delete;
  GpuStreamState& operator=(const GpuStreamState&) = delete;

  [[nodiscard]] CudaStream cuda() const { return stream_; }
  void enqueue(std::function<void()> task);
  [[nodiscard]] GpuEvent record();
  void wait_for(const GpuEvent& event);
  void synchronize(const Deadline& deadline);
  void stop();
  /// The last call: gives the stream back, which CUDA does when it has run to its end.
  void release() noexcept;
  [[nodiscard]] bool is_current() const;

 private:
  void require_open(bool for_tasks) const;
  void require_other_thread(const char* what) const;
  static void run_front(void* state);

  GpuDevice& gpu_;
  CudaStream stream_ = nullptr;
  StreamErrors errors_;
  std::mutex launch_mutex_;  // held while a task is enqueued; before mutex_
  std::mutex
      mutex_;  // guards what follows; held neither while a task runs nor while CUDA is called
  bool is_closed_ = false;
  std::deque<std::function<void()>> queue_;
  std::shared_ptr<GpuStreamState> self_;  // null: the queue is empty
};

}  // namespace crossdevice::detail
