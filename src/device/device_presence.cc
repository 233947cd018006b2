// SPDX-License-Identifier: Apache-2.0
// Which of the devices one can name this process has.
#include <atomic>
#include <string>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/device_spec.h"
#include "crossdevice/device/gpu_platform.h"

#include "device/detail/label_filter.h"

namespace crossdevice {
namespace {

constexpr int kMaxCpuDevices = 4096;

// 0: nobody has set it or asked yet, so the environment decides. A count guards no other memory, so relaxed
// is enough.
std::atomic<int> cpu_devices{0};

// Relaxed: the filter is a function, and whatever it reads it guards itself.
std::atomic<detail::LabelFilter> label_filter{nullptr};

bool has_own_labels(const Device& device) {
  const detail::LabelFilter filter = label_filter.load(std::memory_order_relaxed);
  return filter == nullptr || filter(device.spec());
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

}  // namespace

void set_logical_cpu_devices(int count) {
  if (count < 1 || count > kMaxCpuDevices) {
    throw ValueError("set_logical_cpu_devices: expected 1 to " + std::to_string(kMaxCpuDevices) +
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

int num_gpus() {
  // Relaxed would do: the number never changes, and whoever comes first finds the same.
  static std::atomic<int> known{-1};
  int count = known.load(std::memory_order_relaxed);
  if (count >= 0) return count;
  const detail::GpuPlatform& platform = detail::gpu_platform();
  if (!platform.has_gpus() ||
      platform.cuda->get_device_count(&count) != detail::CudaStatus::SUCCESS) {
    count = 0;
  }
  known.store(count, std::memory_order_relaxed);
  return count;
}

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
      throw ValueError(short_name() + ": this host has " + counted(num_gpus(), "GPU"));
  }
}

namespace detail {
void set_label_filter(LabelFilter filter) { label_filter.store(filter, std::memory_order_relaxed); }
}  // namespace detail

}  // namespace crossdevice
