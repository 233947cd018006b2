// SPDX-License-Identifier: Apache-2.0
/// What is looked at, and in which order.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "doctor/finding.h"

namespace crossdevice::doctor {

/// What the library does without what a probe looks at.
enum class Need : std::uint8_t {
  ALWAYS,          ///< it cannot
  WHERE_IT_WORKS,  ///< it is taken unasked, and the library goes on where it refuses; any other error, a crash or a wrong value ends or spoils programs
  WHEN_ASKED_FOR,  ///< it is never taken unasked
};

/// Whether a probe asks for environment(), and ends where a variable holds what it may not.
enum class Settings : std::uint8_t {
  READ,
  NOT_READ,
  JUDGED,  ///< by it: the probe that says which variable it is
};

struct Probe {
  const char* name;   ///< "shared-memory"
  Findings (*run)();  ///< may throw, crash or hang: it has a process of its own
  const char*
      finding;  ///< its main one's name, and that of what is found where it throws, crashes or hangs
  const char* advice;  ///< for that; else it is the findings' own
  Need need = Need::ALWAYS;
  Settings settings = Settings::READ;
};

/// How the process of a probe ended.
enum class End : std::uint8_t {
  REPORT,   ///< with findings
  REFUSAL,  ///< with Refused
  ERROR,    ///< with another exception
  CRASH,    ///< or it was stopped
};

/// Failures of what nobody needs become shortfalls.
[[nodiscard]] Findings weighed(const Probe& probe, End end, Findings findings);

/// What is found without running it where a variable holds what it may not.
[[nodiscard]] Findings skipped(const Probe& probe);

/// All of them, in the order of the report.
[[nodiscard]] std::span<const Probe> all_probes();

/// Null: there is none of that name.
[[nodiscard]] const Probe* find_probe(std::string_view name);

}  // namespace crossdevice::doctor
