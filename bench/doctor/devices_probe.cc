// SPDX-License-Identifier: Apache-2.0
/// Which devices there are, and where CUDA's are not, why.
#include <cstddef>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/device/device.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/gpu_platform.h"

#include "doctor/probes.h"
#include "doctor/system.h"
#include "support/byte_size.h"

namespace crossdevice::doctor {
namespace {

/// 12040 is 12.4.
std::string cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// Whether NVIDIA's driver shows itself, whatever CUDA says.
bool has_nvidia_driver(const System& system) {
  return system.has("/proc/driver/nvidia/version") || system.has("/dev/nvidiactl");
}

/// By PCI address: what the machine has, with or without a driver. A container sees its machine's.
std::vector<std::string> nvidia_gpus(const System& system) {
  const std::string folder = "/sys/bus/pci/devices/";
  std::vector<std::string> gpus;
  for (const std::string& address : system.names_in(folder)) {
    const std::string vendor = system.first_line_of(folder + address + "/vendor").value_or("");
    const std::string type = system.first_line_of(folder + address + "/class").value_or("");
    // 03: displays, with 0300 for those that have a screen and 0302 for those that only compute.
    if (vendor == "0x10de" && type.starts_with("0x03")) gpus.push_back(address);
  }
  return gpus;
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

Finding why_no_gpus(const System& system, const std::string& reason) {
  Finding finding{.name = "GPUs", .status = Status::ABSENT, .text = "none: " + reason};
  const bool has_driver = has_nvidia_driver(system);
  const std::vector<std::string> gpus = nvidia_gpus(system);
  finding.facts = {
      {"count", 0}, {"reason", reason}, {"driver_is_there", has_driver}, {"pci", gpus}};
  if (!has_driver && gpus.empty()) return finding;
  constexpr const char* kBuild =
      "build with CUDA's toolkit (12.1 or newer): cmake --preset release says whether it finds one";
  const bool is_built_without = reason.find("built without") != std::string::npos;
  if (!has_driver) {
    finding.status = Status::SHORTFALL;
    finding.text +=
        fmt::format("; yet the PCI bus has {} of NVIDIA's GPUs ({}), and no driver is there",
                    gpus.size(), fmt::join(gpus, ", "));
    finding.advice =
        "install NVIDIA's driver (nvidia-smi then lists the GPU); in a container, where the "
        "machine has it, pass the GPU through: docker run --gpus all";
    if (is_built_without) finding.advice += std::string("; and ") + kBuild;
    return finding;
  }
  finding.text += "; yet NVIDIA's driver is there";
  if (is_built_without) {
    finding.status = Status::SHORTFALL;
    finding.advice = kBuild;
  } else {
    finding.status = Status::FAILURE;
    finding.advice =
        "nvidia-smi tells whether driver and GPU are well; in a container: docker run --gpus all; "
        "CUDA_VISIBLE_DEVICES hides GPUs";
  }
  return finding;
}

Finding find_cuda(const System& system) {
  detail::CudaApi& cuda = *detail::gpu_platform().cuda;
  int driver = 0;
  int runtime = 0;
  detail::require_cuda(cuda, cuda.driver_version(&driver), "cudaDriverGetVersion");
  detail::require_cuda(cuda, cuda.runtime_version(&runtime), "cudaRuntimeGetVersion");
  Finding finding{.name = "CUDA"};
  finding.text =
      fmt::format("run time {}, driver for {}", cuda_version(runtime), cuda_version(driver));
  if (const auto line = system.first_line_of("/proc/driver/nvidia/version")) {
    finding.text += "; " + *line;
  }
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

Findings probe_devices(const System& system) {
  Findings findings{find_host_devices()};
  const detail::GpuPlatform& platform = detail::gpu_platform();
  const int count = num_gpus();
  const bool has_cuda = platform.has_gpus();
  findings.push_back(has_cuda ? find_cuda(system) : why_no_cuda(platform.reason_against));
  if (count == 0) {
    findings.push_back(
        why_no_gpus(system, has_cuda ? "CUDA finds no GPU" : platform.reason_against));
    return findings;
  }
  findings.push_back(find_gpus(count));
  for (int i = 0; i < count; ++i) findings.push_back(find_gpu(Device(fmt::format("GPU:{}", i))));
  if (count > 1) findings.push_back(find_peers(count));
  return findings;
}

}  // namespace crossdevice::doctor
