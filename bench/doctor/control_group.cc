// SPDX-License-Identifier: Apache-2.0
#include "doctor/control_group.h"

#include <algorithm>
#include <sstream>
#include <string>

namespace crossdevice::doctor {
namespace {

/// Nothing where the file is not there, or says "max".
std::optional<std::size_t> bytes_in(const System& system, const std::string& path) {
  std::istringstream in(system.first_line_of(path).value_or(""));
  std::size_t bytes = 0;
  if (!(in >> bytes)) return std::nullopt;
  return bytes;
}

/// What the kernel cannot take back when the group needs memory: all that the group is charged, but for its cache of files that were not used of late
/// (inactive_file). Shared memory is charged elsewhere (inactive_anon), and stays.
std::size_t used_bytes(const System& system, const std::string& group) {
  const std::size_t charged = bytes_in(system, group + "/memory.current").value_or(0);
  const std::size_t cache = system.number_in(group + "/memory.stat", "inactive_file").value_or(0);
  return charged - std::min(charged, cache);
}

}  // namespace

std::optional<double> group_cores(const System& system) {
  std::optional<double> least;
  for (const std::string& group : system.control_groups()) {
    std::istringstream in(system.first_line_of(group + "/cpu.max").value_or(""));
    double quota = 0;
    double period = 0;
    if (!(in >> quota >> period) || period <= 0) continue;  // "max 100000" is no number
    least = std::min(least.value_or(quota / period), quota / period);
  }
  return least;
}

std::optional<GroupMemory> group_memory(const System& system) {
  std::optional<GroupMemory> least;
  for (const std::string& group : system.control_groups()) {
    const std::optional<std::size_t> limit = bytes_in(system, group + "/memory.max");
    if (!limit.has_value()) continue;
    const std::size_t free = *limit - std::min(*limit, used_bytes(system, group));
    if (!least.has_value() || free < least->free_bytes) {
      least = GroupMemory{.limit_bytes = *limit, .free_bytes = free};
    }
  }
  return least;
}

}  // namespace crossdevice::doctor
