// SPDX-License-Identifier: Apache-2.0
/// Makes lists of devices from names and counts.
#include "support/device_list.h"

#include <cstddef>

#include <fmt/core.h>

#include "support/program.h"

namespace crossdevice::programs {

namespace {

constexpr int kDefaultHostDevices = 4;

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

std::vector<std::string> split_device_names(std::string_view list) {
  std::vector<std::string> names;
  std::string_view rest = list;
  for (;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = trim(rest.substr(0, comma));
    if (name.empty()) {
      throw ArgumentError(fmt::format(
          "'{}' is not a list of devices: expected names with commas between, CPU:0,CPU:1", list));
    }
    names.emplace_back(name);
    if (comma == std::string_view::npos) return names;
    rest.remove_prefix(comma + 1);
  }
}

Devices parse_devices(std::string_view list) {
  std::vector<Device> devices;
  for (const std::string& name : split_device_names(list)) {
    devices.emplace_back(name);
    devices.back().require_present();
  }
  const Devices result{std::span<const Device>(devices)};
  if (result.has_duplicates()) {
    throw ArgumentError(fmt::format("'{}' names a device twice: {}", list, result.to_string()));
  }
  return result;
}

namespace {

Devices first_of(const char* type, int count) {
  std::vector<Device> devices;
  for (int index = 0; index < count; ++index) {
    devices.emplace_back(fmt::format("{}:{}", type, index));
    devices.back().require_present();
  }
  return Devices(std::span<const Device>(devices));
}

}  // namespace

Devices first_devices(int count) {
  if (count < 1) throw ArgumentError(fmt::format("{} devices: expected at least 1", count));
  return first_of(num_gpus() > 0 ? "GPU" : "CPU", count);
}

Devices default_devices() {
  return num_gpus() > 0 ? first_of("GPU", num_gpus()) : default_host_devices();
}

Devices default_host_devices() {
  int count = 1;  // fewer than usual, where CROSSDEVICE_CPU_DEVICES says so
  while (count < kDefaultHostDevices && Device(fmt::format("CPU:{}", count)).is_present()) ++count;
  return first_of("CPU", count);
}

}  // namespace crossdevice::programs
