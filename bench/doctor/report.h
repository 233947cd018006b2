// SPDX-License-Identifier: Apache-2.0
/// The report, for people and for programs.
#pragma once

#include <string>

#include "doctor/finding.h"

namespace crossdevice::doctor {

/// Marks in colours: for terminals.
enum class Colours : bool { NO, YES };

/// Who is looked at: the program's version, the machine's name and the time.
[[nodiscard]] std::string report_head();

/// A finding's line, or lines.
[[nodiscard]] std::string report_line(const Finding& finding, Colours colours);

/// What it comes to, and what is to be done.
[[nodiscard]] std::string report_end(const Findings& findings, Colours colours);

/// All of it: {"program", "version", "host", "time", "healthy", "findings": [{"name", "status", "text", "advice", "facts"}]}.
[[nodiscard]] std::string json_report(const Findings& findings);

}  // namespace crossdevice::doctor
