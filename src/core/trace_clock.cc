// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/core/trace_clock.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace crossdevice::detail {
namespace {

/// Which machine this is, since it was started, and which of its time namespaces.
std::string read_clock_id() {
  std::string id;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  (void)std::getline(file, id);
  std::error_code error;  // kernels before 5.6 have no such namespaces
  const std::string time_namespace = std::filesystem::read_symlink("/proc/self/ns/time", error);
  return error ? id : id + " " + time_namespace;
}

}  // namespace

std::int64_t trace_clock_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

const std::string& trace_clock_id() {
  // Never destroyed: the control plane's threads may still ask while the process ends.
  static const std::string& id = *new std::string(read_clock_id());
  return id;
}

}  // namespace crossdevice::detail
