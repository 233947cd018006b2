// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/gpu_run.h"

#include <utility>

#include "crossdevice/comm/gpu_watchdog.h"
#include "crossdevice/core/error.h"

namespace crossdevice::detail {

void GpuRun::begin() {
  lanes_.gather_streams();
  is_open_ = true;
  if (!is_captured_) start_ = GpuEvent::record(*lanes_[0].device, lanes_[0].stream);
}

void GpuRun::end(const GpuOperation& operation, DType dtype, std::shared_ptr<NcclClique> clique) {
  lanes_.release_streams();
  is_open_ = false;
  if (is_captured_ || operation.record.kind.empty()) return;
  WatchedOperation watched;
  watched.record = operation.record;
  watched.size_bytes = operation.record.size_bytes;
  watched.dtype = dtype;
  watched.timeout_seconds = operation.timeout_seconds;
  watched.start = start_;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    watched.ends.push_back(GpuEvent::record(*lanes_[i].device, lanes_[i].stream));
  }
  watched.clique = std::move(clique);
  watched.listener = operation.listener;
  watched.inputs_intact = !operation.is_in_place;
  watched.devices = lanes_.names();
  watched.stream = lanes_[0].stream;
  watch(std::move(watched));
}

void GpuRun::rethrow(const OpError& error, const GpuOperation& operation) const {
  if (has_written_ && operation.is_in_place) throw_with_inputs_changed(error);
  throw;  // `error`, as the caught one that it is
}

GpuRun::~GpuRun() {
  if (!is_open_) return;
  try {
    // What was enqueued may touch other GPUs' memory, which is freed in the order of their streams.
    lanes_.meet();
    lanes_.release_streams();
  } catch (...) {
    // The error that left the operation half way is on its way already.
  }
}

}  // namespace crossdevice::detail
