// SPDX-License-Identifier: Apache-2.0
/// What control groups (version 2) leave this process: a container's limits, and those of whatever it is in.
#pragma once

#include <cstddef>
#include <optional>

#include "doctor/system.h"

namespace crossdevice::doctor {

/// The tightest of the group's and its ancestors', in cores: "200000 100000" are 2. Nothing: none is set.
[[nodiscard]] std::optional<double> group_cores(const System& system);

struct GroupMemory {
  std::size_t limit_bytes = 0;
  std::size_t free_bytes = 0;
};

/// Of the group or ancestor that has the least left, which need not be the one of the lowest limit. Nothing: none is set.
[[nodiscard]] std::optional<GroupMemory> group_memory(const System& system);

}  // namespace crossdevice::doctor
