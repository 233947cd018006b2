// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/shared_location.h"

#include "crossdevice/core/error.h"
#include "crossdevice/device/memory_pool.h"

namespace crossdevice::detail {

std::optional<SharedLocation> locate(const Tensor& tensor) {
  const std::optional<SegmentLocation> found =
      MemoryPool::of(tensor.device()).locate(tensor.data());
  if (!found.has_value() || found->segment_fd < 0) return std::nullopt;
  return SharedLocation{.segment_id = found->segment_id,
                        .segment_size_bytes = found->segment_size_bytes,
                        .offset_bytes = found->offset_bytes,
                        .segment_fd = found->segment_fd};
}

SharedLocation require_location(const Tensor& pooled) {
  if (const std::optional<SharedLocation> location = locate(pooled)) return *location;
  // A segment without a descriptor, because there was none left: what is allocated from now on comes from another one, which may get one.
  MemoryPool::of(pooled.device()).move_segment(pooled.data());
  throw ResourceExhaustedError(
      "the memory pool of " + pooled.device().short_name() +
      " has no memory that other processes can map: the system gave it none with a file "
      "descriptor");
}

}  // namespace crossdevice::detail
