// SPDX-License-Identifier: Apache-2.0
/// Which devices there are, and where CUDA's are not, why.
#include <cstddef>
#include <filesystem>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "crossdevice/device/device.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/gpu_platform.h"

#include "doctor/probes.h"
#include "doctor/system_file.h"
#include "support/byte_size.h"

namespace crossdevice::doctor {
namespace {

/// 12040 is 12.4.
std::string cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// Whether NVIDIA's driver shows itself, whatever CUDA says.
bool has_nvidia_driver() {
  std::error_code error;
  return std::filesystem::exists("/proc/driver/nvidia/version", error) ||
         std::filesystem::exists("/dev/nvidiactl", error);
}

Finding find_host_devices() {
  const int count = num_logical_cpu_devices();
  return {.name = "host devices",
          .text = count == 1 ? "CPU:0" : fmt::format("CPU:0 to CPU:{}", count - 1),
          .facts = {{"count", count}}};
}

/// Whether that is a fault, and what to do, is said of GPUs alone.
Finding why_no_cuda(const std::string& reason) {
  return {.name = "CUDA",
          .status = Status::ABSENT,
          .text = "none: " + reason,
          .facts = {{"reason", reason}}};
}

Finding why_no_gpus(const std::string& reason) {
  Finding finding{.name = "GPUs", .status = Status::ABSENT, .text = "none: " + reason};
  finding.facts = {{"count", 0}, {"reason", reason}, {"driver_is_there", has_nvidia_driver()}};
  if (!has_nvidia_driver()) return finding;
  finding.text += "; yet NVIDIA's driver is there";
  if (reason.find("built without") != std::string::npos) {
    finding.status = Status::SHORTFALL;
    finding.advice =
        "build with CUDA's toolkit (12.1 or newer): cmake --preset release says whether it finds "
        "one";
  } else {
    finding.status = Status::FAILURE;
    finding.advice =
        "nvidia-smi tells whether driver and GPU are well; in a container: docker run --gpus all; "
        "CUDA_VISIBLE_DEVICES hides GPUs";
  }
  return finding;
}

Finding find_cuda() {
  detail::CudaApi& cuda = *detail::gpu_platform().cuda;
  int driver = 0;
  int runtime = 0;
  detail::require_cuda(cuda, cuda.driver_version(&driver), "cudaDriverGetVersion");
  detail::require_cuda(cuda, cuda.runtime_version(&runtime), "cudaRuntimeGetVersion");
  Finding finding{.name = "CUDA"};
  finding.text =
      fmt::format("run time {}, driver for {}", cuda_version(runtime), cuda_version(driver));
  if (const auto line = first_line_of("/proc/driver/nvidia/version")) finding.text += "; " + *line;
  finding.facts = {{"runtime", runtime}, {"driver", driver}};
  return finding;
}

Finding find_gpus(int count) {
  return {.name = "GPUs",
          .text = count == 1 ? "1: GPU:0" : fmt::format("{}: GPU:0 to GPU:{}", count, count - 1),
          .facts = {{"count", count}}};
}

Finding find_gpu(const Device& device) {
  const detail::CudaDeviceProperties& gpu = detail::GpuDevice::of(device).properties();
  Finding finding{.name = device.short_name()};
  finding.text =
      fmt::format("{}, {}, compute capability {}.{}, {} multiprocessors, {}", gpu.name,
                  programs::format_byte_size(gpu.total_memory_bytes), gpu.compute_capability / 10,
                  gpu.compute_capability % 10, gpu.num_multiprocessors, gpu.pci_bus_id);
  finding.facts = {{"name", gpu.name},
                   {"memory_bytes", gpu.total_memory_bytes},
                   {"compute_capability", gpu.compute_capability},
                   {"multiprocessors", gpu.num_multiprocessors},
                   {"pci_bus_id", gpu.pci_bus_id},
                   {"has_memory_pools", gpu.has_memory_pools}};
  if (!gpu.has_memory_pools) {
    finding.status = Status::FAILURE;
    finding.text += "; no stream-ordered memory";
    finding.advice =
        "tensors there need cudaMallocAsync: a newer driver, or a GPU (or vGPU profile) that has "
        "it";
  }
  return finding;
}

/// Which GPUs do not read and write each other's memory.
Finding find_peers(int count) {
  std::string apart;
  std::size_t num_apart = 0;
  for (int i = 0; i < count; ++i) {
    for (int j = 0; j < count; ++j) {
      detail::GpuDevice& one = detail::GpuDevice::of(Device(fmt::format("GPU:{}", i)));
      detail::GpuDevice& other = detail::GpuDevice::of(Device(fmt::format("GPU:{}", j)));
      if (one.reaches(other)) continue;
      ++num_apart;
      apart += fmt::format("{}GPU:{} to GPU:{}", apart.empty() ? "" : ", ", i, j);
    }
  }
  Finding finding{.name = "GPUs' reach", .text = "every GPU reads every other one's memory"};
  finding.facts = {{"pairs_apart", num_apart}};
  if (num_apart > 0) {
    finding.status = Status::SHORTFALL;
    finding.text = "no direct access: " + apart;
    finding.advice =
        "values between them are copied through the host: nvidia-smi topo -p2p r says why (IOMMU, "
        "PCIe access control, or the GPUs "
        "themselves)";
  }
  return finding;
}

}  // namespace

Findings probe_devices() {
  Findings findings{find_host_devices()};
  const detail::GpuPlatform& platform = detail::gpu_platform();
  const int count = num_gpus();
  const bool has_cuda = platform.has_gpus();
  findings.push_back(has_cuda ? find_cuda() : why_no_cuda(platform.reason_against));
  if (count == 0) {
    findings.push_back(why_no_gpus(has_cuda ? "CUDA finds no GPU" : platform.reason_against));
    return findings;
  }
  findings.push_back(find_gpus(count));
  for (int i = 0; i < count; ++i) findings.push_back(find_gpu(Device(fmt::format("GPU:{}", i))));
  if (count > 1) findings.push_back(find_peers(count));
  return findings;
}

}  // namespace crossdevice::doctor
