// SPDX-License-Identifier: Apache-2.0
/// On GPUs: when results are there, and what the operation is held against - a flat copy, and NCCL called directly.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "crossdevice/comm/nccl_api.h"
#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/tensor.h"

#include "collective/case_buffers.h"
#include "collective/collective.h"

namespace crossdevice::bench {

/// Returns when everything that has been enqueued on the library's own streams of these GPUs is done; looks all the time.
///
/// Errors   DeadlineExceededError: after ten minutes.
void wait_for_gpus(const Devices& devices);

/// "2 GPUs: NVIDIA H200; CUDA 13.0, driver 13.0; NCCL 2.28.9 at /usr/lib/..."
[[nodiscard]] std::string describe_gpus(const Devices& devices);

/// Every input is copied to other memory of its GPU, on all GPUs at once: each byte is read once and written once.
class GpuCopyLimit {
 public:
  /// Memory   as much again as the inputs.
  explicit GpuCopyLimit(const CaseBuffers& buffers);
  static constexpr const char* kName = "flat_device_copy";
  /// Bytes read plus bytes written by one round of copies.
  [[nodiscard]] std::size_t traffic_bytes() const { return traffic_bytes_; }
  void enqueue() const;

 private:
  struct Pair {
    Tensor source;
    Tensor target;
  };
  std::vector<Pair> pairs_;
  std::size_t traffic_bytes_ = 0;
};

/// ncclAllReduce over a case's buffers, by the library's table and communicators and with nothing else of it: of MEAN the sum, of a
/// batch's tensors a call each, all in one group: nothing is packed.
class RawNccl {
 public:
  /// Nothing: the case is no all-reduce of one tensor or several, or NCCL cannot work there. `among`: of all workers' GPUs, where there are several workers.
  [[nodiscard]] static std::optional<RawNccl> make(
      const Case& test_case, const std::shared_ptr<detail::NcclClique>& among = nullptr);
  void enqueue(const CaseBuffers& buffers, Placement placement) const;

 private:
  RawNccl(std::shared_ptr<detail::NcclClique> clique, detail::NcclReduction reduction)
      : clique_(std::move(clique)), reduction_(reduction) {}
  std::shared_ptr<detail::NcclClique> clique_;
  detail::NcclReduction reduction_;
};

}  // namespace crossdevice::bench
