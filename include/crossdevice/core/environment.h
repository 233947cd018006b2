// SPDX-License-Identifier: Apache-2.0
/// Every environment variable this library reads, in one place.
#pragma once

#include <optional>
#include <string>

#include "crossdevice/core/export.h"

namespace crossdevice {

/// Read once, when first asked for; setting a variable later has no effect.
struct CROSSDEVICE_EXPORT Environment {
  /// CROSSDEVICE_CPU_DEVICES: number of logical host devices CPU:0, CPU:1, ... (1 to 4096; default 64).
  int cpu_devices = 64;
  /// CROSSDEVICE_NUM_THREADS: threads that reduce on hosts, the caller included (1 to 4096; default: the cores this process may use).
  int num_threads = 0;
  /// CROSSDEVICE_DEFAULT_TIMEOUT: deadline in seconds of operations that set none (default: none).
  std::optional<double> default_timeout_seconds = std::nullopt;
  /// CROSSDEVICE_STRICT=1: an unavailable implementation is an error, not a documented fallback.
  bool strict = false;
  /// CROSSDEVICE_LOG_LEVEL: info, warning (default), failure or none.
  std::string log_level = "warning";
};

/// Errors   ValueError (on the first call): a variable holds what it may not hold; says which, what and what is allowed.
[[nodiscard]] CROSSDEVICE_EXPORT const Environment& environment();

/// Parses the variables as `lookup` gives them (std::getenv's contract): what environment() does with the real ones.
[[nodiscard]] CROSSDEVICE_EXPORT Environment parse_environment(const char* (*lookup)(const char* name));

}  // namespace crossdevice
