// SPDX-License-Identifier: Apache-2.0
// Device strings: a line that names a device, and one with defaults for it. What is accepted prints as something that means the same.
#include <algorithm>
#include <string>
#include <vector>

#include "crossdevice/core/error.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/device_spec.h"

#include "fuzz/fuzz_target.h"

namespace crossdevice {
namespace {

/// Names are interned for the life of the process: only so many of them.
constexpr int kMaxDevices = 20'000;

void check_spec(const std::string& text) {
  DeviceSpec spec;
  try {
    spec = DeviceSpec::from_string(text);
  } catch (const ValueError&) {
    return;
  }
  const std::string canonical = spec.to_string();
  const DeviceSpec again = DeviceSpec::from_string(canonical);
  FUZZ_EXPECT(again == spec);
  FUZZ_EXPECT(again.to_string() == canonical);
  FUZZ_EXPECT(spec.is_compatible_with(again) && again.is_compatible_with(spec));
  FUZZ_EXPECT(DeviceSpec{}.make_merged_spec(spec) == spec);
  FUZZ_EXPECT(spec.make_merged_spec({}) == spec);
  FUZZ_EXPECT(std::hash<DeviceSpec>{}(spec) == std::hash<DeviceSpec>{}(again));
  const std::string host = get_host_for_device(text);
  FUZZ_EXPECT(get_host_for_device(host) == host);
}

void check_canonical(const std::string& text, const std::string& defaults) {
  try {
    const std::string full = canonicalize(text, defaults);
    FUZZ_EXPECT(canonicalize(full) == full);
    FUZZ_EXPECT(canonicalize(full, defaults) == full);
  } catch (const ValueError&) {
  }
  try {
    const std::string bare = canonicalize_without_job_and_task(text);
    FUZZ_EXPECT(canonicalize_without_job_and_task(bare) == bare);
  } catch (const ValueError&) {
  }
}

/// As many GPUs as the length and the first byte of a text say.
void check_local_devices(const std::string& text) {
  const int num_gpus = static_cast<int>(text.size() % 8) * (text.starts_with('-') ? -1 : 1);
  try {
    const std::vector<std::string> devices = local_devices_from_num_gpus(num_gpus);
    FUZZ_EXPECT(devices.size() == static_cast<std::size_t>(std::max(num_gpus, 1)));
    for (const std::string& each : devices) {
      FUZZ_EXPECT(DeviceSpec::from_string(each).to_string() == each);
    }
  } catch (const ValueError&) {
    FUZZ_EXPECT(num_gpus < 0);
  }
}

void check_device(const std::string& text) {
  static int num_devices = 0;
  if (num_devices >= kMaxDevices) return;
  try {
    const Device device(text);
    ++num_devices;
    FUZZ_EXPECT(device.index() >= 0);
    FUZZ_EXPECT(Device(device.name()) == device);
    FUZZ_EXPECT(Device(device.short_name()) == device);
    FUZZ_EXPECT(device.spec() == DeviceSpec::from_string(device.name()));
    FUZZ_EXPECT(Devices({device, device}).has_duplicates());
    try {
      device.require_present();
      FUZZ_EXPECT(device.is_present());
    } catch (const ValueError&) {
      FUZZ_EXPECT(!device.is_present());
    }
  } catch (const ValueError&) {
  }
}

}  // namespace
}  // namespace crossdevice

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input = crossdevice::fuzz::text_of(data, size);
  const std::size_t line_end = std::min(input.find('\n'), input.size());
  const std::string text = input.substr(0, line_end);
  const std::string defaults = input.substr(std::min(line_end + 1, input.size()));
  crossdevice::check_spec(text);
  crossdevice::check_canonical(text, defaults);
  crossdevice::check_device(text);
  crossdevice::check_local_devices(text);
  return 0;
}
