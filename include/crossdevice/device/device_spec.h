// SPDX-License-Identifier: Apache-2.0
/// Device strings as TF writes them, "/job:worker/task:1/device:GPU:0", and the arithmetic on them.
/// TF counterparts: tf.DeviceSpec and device_util.
///
/// Grammar: parts between "/", each split at ":", in any order, empty parts ignored:
///   `job:<name> | replica:<int> | task:<int> | <TYPE>[:<int or *>] | device:<TYPE>:<int or *>`
/// A bare `<TYPE>` is CPU, GPU, TPU, CUSTOM or EPU in any case; behind "device:" any word is one,
/// kept letter by letter ("cpu" and "gpu" become upper case). An `<int>` is decimal, with an optional
/// sign. A repeated job, replica or task: the last one wins, as in TF. Strings are read as ASCII,
/// whatever the locale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/core/export.h"

namespace crossdevice {

/// A possibly partial device name; an absent field means "any".
struct CROSSDEVICE_EXPORT DeviceSpec {
  std::optional<std::string> job = std::nullopt;
  std::optional<std::int64_t> replica = std::nullopt;
  std::optional<std::int64_t> task = std::nullopt;
  std::optional<std::string> device_type = std::nullopt;
  std::optional<std::int64_t> device_index = std::nullopt;

  /// Errors   ValueError: unknown attribute, multiple device types, not an integer; quotes the
  /// string.
  [[nodiscard]] static DeviceSpec from_string(std::string_view spec);
  /// Canonical form: /job:J/replica:R/task:T/device:TYPE:INDEX, absent fields omitted, "*" for an
  /// absent index; an index without a type is not shown. What equality and hash go by.
  [[nodiscard]] std::string to_string() const;
  /// Each field that `dev` has wins over this one's.
  [[nodiscard]] DeviceSpec make_merged_spec(const DeviceSpec& dev) const;
  /// Whether every field that both have is equal.
  [[nodiscard]] bool is_compatible_with(const DeviceSpec& other) const;

  friend bool operator==(const DeviceSpec& a, const DeviceSpec& b) {
    return a.to_string() == b.to_string();
  }
};

/// The full name of `device`: job "localhost", replica 0, task 0 and CPU:0 are filled in, then
/// `default_device`'s fields, then `device`'s. So "" and "/job:worker" are CPU:0, as in TF.
///
/// Errors   ValueError: either is no device string; the type of the result is not all-caps.
[[nodiscard]] CROSSDEVICE_EXPORT std::string canonicalize(std::string_view device,
                                                          std::string_view default_device = "");

/// canonicalize() without job and task, replica 0.
[[nodiscard]] CROSSDEVICE_EXPORT std::string canonicalize_without_job_and_task(
    std::string_view device);

/// CPU:0 of the same job, replica and task.
///
/// Errors   ValueError: no device string.
[[nodiscard]] CROSSDEVICE_EXPORT std::string get_host_for_device(std::string_view device);

/// {"/device:GPU:0", ...} for n > 0, {"/device:CPU:0"} for 0.
///
/// Errors   ValueError: negative.
[[nodiscard]] CROSSDEVICE_EXPORT std::vector<std::string> local_devices_from_num_gpus(int num_gpus);

}  // namespace crossdevice

template <>
struct std::hash<crossdevice::DeviceSpec> {
  std::size_t operator()(const crossdevice::DeviceSpec& spec) const {
    return std::hash<std::string>{}(spec.to_string());
  }
};
