// SPDX-License-Identifier: Apache-2.0
/// What is looked at, and in which order.
#pragma once

#include <span>
#include <string_view>

#include "doctor/finding.h"

namespace crossdevice::doctor {

struct Probe {
  const char* name;   ///< "shared-memory"
  Findings (*run)();  ///< may throw, crash or hang: it has a process of its own
};

/// All of them, in the order of the report.
[[nodiscard]] std::span<const Probe> all_probes();

/// Null: there is none of that name.
[[nodiscard]] const Probe* find_probe(std::string_view name);

}  // namespace crossdevice::doctor
