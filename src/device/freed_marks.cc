// SPDX-License-Identifier: Apache-2.0
#include "device/detail/freed_marks.h"

#include <algorithm>

#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/gpu_platform.h"

#include "device/detail/gpu_event_pool.h"

namespace crossdevice::detail {

void FreedMarks::note(CudaStream stream) {
  if (is_captured(gpu_, stream)) return;
  const std::lock_guard lock(mutex_);
  auto mark = std::find_if(marks_.begin(), marks_.end(),
                           [stream](const Mark& each) { return each.stream == stream; });
  if (mark == marks_.end()) {
    // Streams that have been destroyed leave marks behind.
    if (marks_.size() >= kMany) settle_those_that_have_come();
    mark = marks_.insert(marks_.end(), {stream, gpu_.events().take(gpu_.cuda())});
  }
  require_cuda(gpu_.cuda(), gpu_.cuda().event_record(mark->event, stream), "cudaEventRecord");
}

void FreedMarks::settle() {
  const std::lock_guard lock(mutex_);
  settle_those_that_have_come();
}

void FreedMarks::settle_those_that_have_come() {
  CudaApi& cuda = gpu_.cuda();
  const BesideCaptures beside(cuda);
  std::erase_if(marks_, [&](const Mark& mark) {
    if (cuda.event_query(mark.event) != CudaStatus::SUCCESS) return false;
    if (cuda.event_synchronize(mark.event) != CudaStatus::SUCCESS) return false;
    gpu_.events().give_back(mark.event);
    return true;
  });
}

}  // namespace crossdevice::detail
