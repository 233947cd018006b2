// SPDX-License-Identifier: Apache-2.0
/// All-reduces within this process: hosts, GPUs through our kernels, GPUs through NCCL.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/comm/nccl_library.h"
#include "crossdevice/device/device.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "doctor/gpus.h"
#include "doctor/probes.h"
#include "doctor/refusal.h"
#include "doctor/verified_all_reduce.h"
#include "doctor/worker.h"

namespace crossdevice::doctor {
namespace {

constexpr const char* kGpus = "all-reduce, GPUs";
constexpr const char* kNccl = "all-reduce, NCCL";

Devices first_devices(const char* type, int count) {
  std::vector<Device> devices;
  devices.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) devices.emplace_back(fmt::format("{}:{}", type, i));
  return Devices(devices);
}

}  // namespace

Findings probe_host_all_reduce() {
  const int count = std::min(num_logical_cpu_devices(), 4);
  ReductionToOneDevice ops;
  return {all_reduce_finding(
      "all-reduce, one process", fmt::format("{} host devices", count),
      verify_all_reduce(ops, first_devices("CPU", count), {.first = 0, .total = count}))};
}

Findings probe_gpu_all_reduce() {
  int count = num_gpus();
  if (count == 0) return {{.name = kGpus, .status = Status::ABSENT, .text = "no GPU"}};
  std::string where = fmt::format("our kernels on {} GPUs", count);
  if (count == 1) {  // one GPU as two devices: the same kernels, over one memory
    set_logical_gpu_devices(2);
    count = 2;
    where = "our kernels on 2 logical devices of one GPU";
  }
  ReductionToOneDevice ops;
  return {all_reduce_finding(
      kGpus, where,
      verify_all_reduce(ops, first_devices("GPU", count), {.first = 0, .total = count}))};
}

Findings probe_nccl_all_reduce() {
  const std::vector<Device> gpus = one_device_of_each_gpu();
  if (gpus.empty()) return {{.name = kNccl, .status = Status::ABSENT, .text = "no GPU"}};
  if (detail::nccl_library().api == nullptr) {
    return {{.name = kNccl, .status = Status::ABSENT, .text = "no NCCL"}};
  }
  const Devices devices(gpus);
  const auto count = static_cast<int>(gpus.size());
  // Throws why NCCL cannot, where the op would take our kernels.
  (void)make_unless_refused([&] { return detail::NcclClique::of(devices, kWorkerSeconds); });
  NcclAllReduce ops;
  return {all_reduce_finding(kNccl, fmt::format("{} {}", count, count == 1 ? "GPU" : "GPUs"),
                             verify_all_reduce(ops, devices, {.first = 0, .total = count}))};
}

}  // namespace crossdevice::doctor
