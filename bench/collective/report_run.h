// SPDX-License-Identifier: Apache-2.0
/// A whole run as its user sees it: the table while it is measured, the file with the rows, the exit code.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "collective/arguments.h"
#include "collective/measure.h"
#include "collective/plan.h"
#include "collective/team.h"

namespace crossdevice::bench {

/// The file for the rows, before anything is measured or anybody met: a path that cannot be written is known at once.
///
/// Errors   ArgumentError: cannot be written.
[[nodiscard]] std::ofstream open_json(const Arguments& arguments);

/// Measures all groups. The first worker prints the table, headed by `program`, and fills `json` if the arguments name such a file.
/// Returns the program's exit code.
///
/// Ranks    collective over the team.
/// Errors   as measure_cases(). std::runtime_error: the file cannot be written any more.
[[nodiscard]] int measure_and_report(const std::string& program, const Arguments& arguments,
                                     const MeasureOptions& options, Team& team,
                                     std::vector<CaseGroup> groups, std::ofstream& json);

}  // namespace crossdevice::bench
