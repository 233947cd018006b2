// SPDX-License-Identifier: Apache-2.0
/// Copies, raw NCCL, and waiting for GPUs.
#include "collective/gpu_contenders.h"

#include <chrono>
#include <utility>

#include <fmt/core.h>

#include "crossdevice/comm/nccl_library.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/copy.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/gpu_event.h"
#include "crossdevice/device/gpu_platform.h"

namespace crossdevice::bench {

namespace {

constexpr std::chrono::minutes kLongest{10};

/// CUDA's 13020 is 13.2.
std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

void wait_for_gpus(const Devices& devices) {
  std::vector<detail::GpuEvent> ends;
  ends.reserve(devices.size());
  for (const Device& device : devices) {
    detail::GpuDevice& gpu = detail::GpuDevice::of(device);
    ends.push_back(detail::GpuEvent::record(gpu, gpu.own_stream()));
  }
  const Deadline deadline = Deadline::after(kLongest);
  for (const detail::GpuEvent& end : ends) {
    // Without the pauses that GpuEvent::wait() makes: they would be measured.
    while (!end.has_completed()) {
      if (deadline.has_passed()) end.wait(deadline);
    }
  }
}

std::string describe_gpus(const Devices& devices) {
  std::string names;
  for (const Device& device : devices) {
    const std::string& name = detail::GpuDevice::of(device).properties().name;
    if (names.find(name) == std::string::npos) names += (names.empty() ? "" : ", ") + name;
  }
  int run_time = 0;
  int driver = 0;
  detail::CudaApi& cuda = *detail::gpu_platform().cuda;
  detail::require_cuda(cuda, cuda.runtime_version(&run_time), "cudaRuntimeGetVersion");
  detail::require_cuda(cuda, cuda.driver_version(&driver), "cudaDriverGetVersion");
  const detail::NcclLibrary nccl = detail::nccl_library();
  return fmt::format(
      "{} GPU{}: {}; CUDA {}, driver {}; {}", devices.size(), devices.size() == 1 ? "" : "s", names,
      cuda_version_text(run_time), cuda_version_text(driver),
      nccl.api == nullptr ? "no NCCL: " + nccl.reason_against
                          : fmt::format("NCCL {}.{}.{} at {}", nccl.api->version() / 10000,
                                        nccl.api->version() % 10000 / 100,
                                        nccl.api->version() % 100, nccl.api->path()));
}

GpuCopyLimit::GpuCopyLimit(const CaseBuffers& buffers) {
  for (const PerReplica& input : buffers.inputs()) {
    for (const Tensor& source : input.values()) {
      if (source.size_bytes() == 0) continue;
      pairs_.push_back({source, Tensor::empty(source.dtype(), source.shape(), source.device())});
      traffic_bytes_ += 2 * source.size_bytes();
    }
  }
}

void GpuCopyLimit::enqueue() const {
  for (const Pair& pair : pairs_) copy(pair.target, pair.source);
}

std::optional<RawNccl> RawNccl::make(const Case& test_case,
                                     const std::shared_ptr<detail::NcclClique>& among) {
  if (test_case.num_workers > 1 && among == nullptr) return std::nullopt;
  if ((test_case.collective != Collective::ALL_REDUCE &&
       test_case.collective != Collective::BATCH_REDUCE) ||
      test_case.devices.all_host() || test_case.num_input_elements() == 0) {
    return std::nullopt;
  }
  try {
    std::shared_ptr<detail::NcclClique> clique =
        among != nullptr ? among : detail::NcclClique::of(test_case.devices);
    const std::optional<detail::NcclReduction> reduction = detail::nccl_reduction(
        test_case.op, test_case.dtype, clique->api().version(), clique->compute_capability());
    if (!reduction.has_value()) return std::nullopt;
    return RawNccl(std::move(clique), *reduction);
  } catch (const UnavailableError&) {
    return std::nullopt;  // the ops say why, once
  }
}

void RawNccl::enqueue(const CaseBuffers& buffers, Placement placement) const {
  detail::NcclClique::Launch launch(*clique_);
  for (std::size_t t = 0; t < buffers.inputs().size(); ++t) {
    const std::span<const Tensor> inputs = buffers.inputs()[t].values();
    const std::span<const Tensor> outputs = buffers.outputs(placement)[t].values();
    if (inputs[0].num_elements() == 0) continue;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const int place = static_cast<int>(i);
      launch.require(
          clique_->api().all_reduce(inputs[i].data(), outputs[i].data(),
                                    inputs[i].num_elements() * reduction_.parts, reduction_.type,
                                    reduction_.op, clique_->communicator(place),
                                    clique_->device(place).own_stream()),
          "ncclAllReduce");
    }
  }
  launch.end();
}

}  // namespace crossdevice::bench
