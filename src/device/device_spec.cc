// SPDX-License-Identifier: Apache-2.0
// Parses, prints and merges device strings.
#include "crossdevice/device/device_spec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

constexpr std::array<std::string_view, 5> kBareTypes = {"CPU", "GPU", "TPU", "CUSTOM", "EPU"};

// ASCII only: device words are, and the locale must not matter.
char to_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

std::string upper_case(std::string_view word) {
  std::string result(word);
  std::ranges::transform(result, result.begin(), to_upper);
  return result;
}

bool is_upper_case(std::string_view word) {
  return std::ranges::all_of(word, [](char c) { return to_upper(c) == c; });
}

bool is_bare_type(std::string_view word) {
  return std::ranges::find(kBareTypes, upper_case(word)) != kBareTypes.end();
}

// Only these two words have a lower-case spelling; any other is kept letter by letter.
std::string_view normalized_type(std::string_view type) {
  if (type == "cpu") return "CPU";
  if (type == "gpu") return "GPU";
  return type;
}

bool same_type(const std::optional<std::string>& a, const std::optional<std::string>& b) {
  return !a || !b || normalized_type(*a) == normalized_type(*b);
}

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

[[noreturn]] void throw_unknown_attribute(std::string_view word, std::string_view spec) {
  throw ValueError("Unknown attribute '" + std::string(word) + "' in device string " +
                   quoted(spec) +
                   ": expected parts job:<name>, replica:<int>, task:<int>, CPU:<int>, GPU:<int> "
                   "or device:<TYPE>:<int>, for example \"GPU:0\"");
}

std::int64_t parse_integer(std::string_view text, std::string_view part, std::string_view spec) {
  std::string_view digits = text;
  if (digits.starts_with('+') && !digits.starts_with("+-")) digits.remove_prefix(1);
  std::int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc() || stop != end) {
    throw ValueError("invalid literal for int '" + std::string(text) + "' in part '" +
                     std::string(part) + "' of device string " + quoted(spec) +
                     ": expected a decimal integer of at most 64 bits");
  }
  return value;
}

void set_device(DeviceSpec& result, std::string type, std::string_view index, std::string_view part,
                std::string_view spec) {
  if (result.device_type) {
    throw ValueError("Multiple device types are not allowed in device string " + quoted(spec) +
                     ": " + *result.device_type + " and " + type);
  }
  result.device_type = std::move(type);
  if (index != "*") result.device_index = parse_integer(index, part, spec);
}

void parse_part(DeviceSpec& result, std::string_view part, std::string_view spec) {
  // Four pieces suffice to tell that there are too many.
  std::array<std::string_view, 4> pieces;
  std::size_t count = 0;
  for (std::string_view rest = part; count < pieces.size();) {
    const std::size_t colon = rest.find(':');
    pieces[count++] = rest.substr(0, colon);
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  const std::string_view word = pieces[0];

  if (count == 2 && word == "job") {
    result.job = pieces[1];
  } else if (count == 2 && word == "replica") {
    result.replica = parse_integer(pieces[1], part, spec);
  } else if (count == 2 && word == "task") {
    result.task = parse_integer(pieces[1], part, spec);
  } else if (count <= 2 && is_bare_type(word)) {
    set_device(result, upper_case(word), count == 2 ? pieces[1] : "*", part, spec);
  } else if (count == 3 && word == "device" && !pieces[1].empty()) {
    set_device(result, std::string(normalized_type(pieces[1])), pieces[2], part, spec);
  } else {
    throw_unknown_attribute(word, spec);
  }
}

// Both present and different: the only way in which two fields exclude each other.
template <class T>
bool agree(const std::optional<T>& a, const std::optional<T>& b) {
  return !a || !b || *a == *b;
}

}  // namespace

DeviceSpec DeviceSpec::from_string(std::string_view spec) {
  DeviceSpec result;
  for (std::string_view rest = spec;;) {
    const std::size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    if (!part.empty()) parse_part(result, part, spec);
    if (slash == std::string_view::npos) return result;
    rest.remove_prefix(slash + 1);
  }
}

std::string DeviceSpec::to_string() const {
  std::string result;
  if (job) result.append("/job:").append(*job);
  if (replica) result.append("/replica:").append(std::to_string(*replica));
  if (task) result.append("/task:").append(std::to_string(*task));
  if (device_type) {
    result.append("/device:").append(normalized_type(*device_type)).append(":");
    result.append(device_index ? std::to_string(*device_index) : "*");
  }
  return result;
}

DeviceSpec DeviceSpec::make_merged_spec(const DeviceSpec& dev) const {
  return {.job = dev.job ? dev.job : job,
          .replica = dev.replica ? dev.replica : replica,
          .task = dev.task ? dev.task : task,
          .device_type = dev.device_type ? dev.device_type : device_type,
          .device_index = dev.device_index ? dev.device_index : device_index};
}

bool DeviceSpec::is_compatible_with(const DeviceSpec& other) const {
  return agree(job, other.job) && agree(replica, other.replica) && agree(task, other.task) &&
         same_type(device_type, other.device_type) && agree(device_index, other.device_index);
}

std::string canonicalize(std::string_view device, std::string_view default_device) {
  const DeviceSpec start{
      .job = "localhost", .replica = 0, .task = 0, .device_type = "CPU", .device_index = 0};
  const DeviceSpec result = start.make_merged_spec(DeviceSpec::from_string(default_device))
                                .make_merged_spec(DeviceSpec::from_string(device));
  if (!is_upper_case(*result.device_type)) {
    throw ValueError("Device type '" + *result.device_type + "' must be all-caps: device string " +
                     quoted(device) + ", default " + quoted(default_device));
  }
  return result.to_string();
}

std::string canonicalize_without_job_and_task(std::string_view device) {
  DeviceSpec spec = DeviceSpec::from_string(canonicalize(device));
  spec.job = std::nullopt;
  spec.task = std::nullopt;
  spec.replica = 0;
  return spec.to_string();
}

std::string get_host_for_device(std::string_view device) {
  DeviceSpec spec = DeviceSpec::from_string(device);
  spec.device_type = "CPU";
  spec.device_index = 0;
  return spec.to_string();
}

std::vector<std::string> local_devices_from_num_gpus(int num_gpus) {
  if (num_gpus < 0) {
    throw ValueError("local_devices_from_num_gpus: expected a number of GPUs >= 0, got " +
                     std::to_string(num_gpus));
  }
  if (num_gpus == 0) return {"/device:CPU:0"};
  std::vector<std::string> devices;
  devices.reserve(static_cast<std::size_t>(num_gpus));
  for (int i = 0; i < num_gpus; ++i) devices.push_back("/device:GPU:" + std::to_string(i));
  return devices;
}

}  // namespace crossdevice
