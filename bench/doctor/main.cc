// SPDX-License-Identifier: Apache-2.0
/// crossdevice-doctor: what works on this machine, and what to do about the rest.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include <fmt/core.h>
#include <unistd.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"

#include "doctor/arguments.h"
#include "doctor/probe.h"
#include "doctor/probe_process.h"
#include "doctor/refusal.h"
#include "doctor/report.h"
#include "doctor/worker.h"
#include "support/program.h"

namespace {

using namespace crossdevice;  // NOLINT(google-build-using-namespace): the program's own

/// As https://no-color.org asks.
doctor::Colours colours_of_output() {
  const bool wanted = process_environment()("NO_COLOR").value_or("").empty();
  return wanted && ::isatty(STDOUT_FILENO) != 0 ? doctor::Colours::YES : doctor::Colours::NO;
}

/// Whether no variable holds what it may not.
bool has_valid_settings() {
  try {
    (void)environment();
    return true;
  } catch (const ValueError&) {
    return false;
  }
}

bool is_wanted(const doctor::Probe& probe, const doctor::Arguments& arguments) {
  return arguments.only.empty() || std::find(arguments.only.begin(), arguments.only.end(),
                                             probe.name) != arguments.only.end();
}

int examine(const doctor::Arguments& arguments) {
  const doctor::Colours colours = colours_of_output();
  const auto show = [&](const std::string& text) {
    if (arguments.writes_json) return;
    fmt::print("{}", text);
    std::fflush(stdout);  // each line as soon as it is known
  };
  const bool is_valid = has_valid_settings();
  doctor::Findings findings;
  show(doctor::report_head());
  for (const doctor::Probe& probe : doctor::all_probes()) {
    // The one cause stands alone, and is seen also by who asks for something else.
    const bool is_cause = !is_valid && probe.settings == doctor::Settings::JUDGED;
    if (!is_cause && !is_wanted(probe, arguments)) continue;
    doctor::Findings found = !is_valid && probe.settings == doctor::Settings::READ
                                 ? doctor::skipped(probe)
                                 : doctor::run_in_process(probe, arguments.timeout);
    for (const doctor::Finding& finding : found) show(doctor::report_line(finding, colours));
    std::move(found.begin(), found.end(), std::back_inserter(findings));
  }
  show(doctor::report_end(findings, colours));
  if (arguments.writes_json) fmt::print("{}", doctor::json_report(findings));
  return doctor::is_healthy(findings) ? programs::kExitOk : programs::kExitWrongValues;
}

int run(int argc, char** argv) {
  const std::optional<doctor::Arguments> arguments = doctor::parse_arguments(argc, argv);
  if (!arguments.has_value()) return programs::kExitOk;
  if (!arguments->worker.empty()) {
    return doctor::run_refusable([&] { return doctor::run_worker(arguments->worker); });
  }
  if (!arguments->probe.empty()) {
    const doctor::Probe& probe = *doctor::find_probe(arguments->probe);
    return doctor::run_refusable([&] { return doctor::serve_probe(probe); });
  }
  return examine(*arguments);
}

}  // namespace

int main(int argc, char** argv) {
  return programs::run_program("crossdevice-doctor", [&] { return run(argc, argv); });
}
