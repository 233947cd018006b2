// SPDX-License-Identifier: Apache-2.0
// Which of the devices one can name this process has.
#include <atomic>
#include <cstdlib>
#include <string>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/device_spec.h"
#include "crossdevice/device/gpu_platform.h"
#include "crossdevice/device/label_filter.h"

#include "device/detail/logical_gpus.h"

namespace crossdevice {
namespace {

constexpr int kMaxDevices = 4096;  // of hosts; logical ones of one GPU

// 0: nobody has set it or asked yet, so the environment decides. A count guards no other memory, so relaxed
// is enough.
std::atomic<int> cpu_devices{0};

// Into how many devices each GPU is split. 0: nobody has set it; n: set; -n: a device was used, so that the split is fixed, because another would
// give the names of existing tensors' devices to other GPUs. Relaxed, as above.
std::atomic<int> gpu_split{0};

// Released when it is set, so that whatever it reads is there.
std::atomic<detail::LabelFilter> label_filter{nullptr};

/// How many devices each GPU is.
int split_of_gpus() {
  const int split = gpu_split.load(std::memory_order_relaxed);
  return split == 0 ? environment().logical_gpus : std::abs(split);
}

/// The same, for good.
int fixed_split_of_gpus() {
  int split = gpu_split.load(std::memory_order_relaxed);
  while (split >= 0) {
    const int used = split == 0 ? environment().logical_gpus : split;
    if (gpu_split.compare_exchange_weak(split, -used, std::memory_order_relaxed)) split = -used;
  }
  return -split;
}

bool has_own_labels(const Device& device) {
  const detail::LabelFilter filter = label_filter.load(std::memory_order_acquire);
  return filter == nullptr || device.has_bare_labels() || filter(device.spec());
}

bool has_present_index(const Device& device) {
  switch (device.type()) {
    case DeviceType::CPU:
      return device.index() < num_logical_cpu_devices();
    case DeviceType::GPU:
      return device.index() < num_gpus();
  }
  return false;
}

std::string counted(int count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

/// CUDA's count, and why there is none.
struct FoundGpus {
  int count = 0;
  std::string reason_against{};
};

FoundGpus find_gpus() {
  const detail::GpuPlatform& platform = detail::gpu_platform();
  if (!platform.has_gpus()) return {.count = 0, .reason_against = platform.reason_against};
  int count = 0;
  const detail::CudaStatus status = platform.cuda->get_device_count(&count);
  if (status == detail::CudaStatus::SUCCESS) return {.count = count};
  return {.count = 0, .reason_against = "cudaGetDeviceCount: " + platform.cuda->error_text(status)};
}

/// Found once: the number never changes. Never destroyed, because devices are asked about until the process ends.
const FoundGpus& found_gpus() {
  static const FoundGpus& found = *new FoundGpus(find_gpus());
  return found;
}

std::string missing_gpu_text() {
  const FoundGpus& found = found_gpus();
  std::string text = "this host has " + counted(found.count, "GPU");
  if (found.count == 0) {
    return found.reason_against.empty() ? text : text + ": " + found.reason_against;
  }
  if (const int split = split_of_gpus(); split != 1) {
    text += ", each split into " + counted(split, "device") + " (CROSSDEVICE_LOGICAL_GPUS)";
  }
  return text;
}

}  // namespace

void set_logical_cpu_devices(int count) {
  if (count < 1 || count > kMaxDevices) {
    throw ValueError("set_logical_cpu_devices: expected 1 to " + std::to_string(kMaxDevices) +
                     " devices, got " + std::to_string(count));
  }
  cpu_devices.store(count, std::memory_order_relaxed);
}

int num_logical_cpu_devices() {
  int count = cpu_devices.load(std::memory_order_relaxed);
  if (count != 0) return count;
  const int by_default = environment().cpu_devices;
  cpu_devices.compare_exchange_strong(count, by_default, std::memory_order_relaxed);
  return count != 0 ? count : by_default;  // what the program has set meanwhile wins
}

void set_logical_gpu_devices(int count) {
  if (count < 1 || count > kMaxDevices) {
    throw ValueError("set_logical_gpu_devices: expected 1 to " + std::to_string(kMaxDevices) +
                     " devices for each GPU, got " + std::to_string(count));
  }
  int known = gpu_split.load(std::memory_order_relaxed);
  do {
    if (known == -count) return;
    if (known < 0) {
      throw FailedPreconditionError(
          "set_logical_gpu_devices: a GPU has been used already, each is " +
          counted(-known, "device"));
    }
  } while (!gpu_split.compare_exchange_weak(known, count, std::memory_order_relaxed));
}

int num_gpus() { return detail::num_physical_gpus() * split_of_gpus(); }

bool Device::is_present() const { return has_present_index(*this) && has_own_labels(*this); }

void Device::require_present() const {
  if (is_present()) return;
  if (!has_own_labels(*this)) {
    throw ValueError(short_name() + ": job, replica and task are those of another process");
  }
  switch (type()) {
    case DeviceType::CPU:
      throw ValueError(short_name() + ": this process has " +
                       counted(num_logical_cpu_devices(), "logical host device") +
                       " (CROSSDEVICE_CPU_DEVICES)");
    case DeviceType::GPU:
      throw ValueError(short_name() + ": " + missing_gpu_text());
  }
}

void Devices::require_present() const {
  // At every call of an op: mostly nobody needs to look at each.
  if (last_bare_host_index() < num_logical_cpu_devices()) return;
  for (const Device& device : *this) device.require_present();
}

namespace detail {

int num_physical_gpus() { return found_gpus().count; }

int physical_gpu_of(int index) { return index / fixed_split_of_gpus(); }

long long first_device_of_gpu(int ordinal) {
  return static_cast<long long>(ordinal) * fixed_split_of_gpus();
}

void set_label_filter(LabelFilter filter) { label_filter.store(filter, std::memory_order_release); }

}  // namespace detail

}  // namespace crossdevice
