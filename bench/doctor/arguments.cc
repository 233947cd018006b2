// SPDX-License-Identifier: Apache-2.0
#include "doctor/arguments.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "crossdevice/core/version.h"

#include "doctor/probe.h"
#include "support/command_line.h"
#include "support/program.h"

namespace crossdevice::doctor {
namespace {

constexpr const char* kHead =
    "Looks at everything the library stands on - cores, memory, limits, environment, launcher, "
    "shared memory, network, GPUs, NCCL, UCX -, "
    "copies between the devices, reduces over every path there is on this machine, checks the "
    "values, and says what to do where something "
    "falls short.";

constexpr const char* kFooter = R"(
Each line has a mark: ok; - for what is not here and not needed; ! for what works, but not as well as it could; FAIL for what does not work and
is needed; ? for what was not run: where a variable holds what it may not, whatever uses the library ends with that, and says nothing of this machine. What is to be done stands at the end. What is taken only when asked for, as UCX is, is never a FAIL where it was not.

Started by a launcher it says what that launcher left for this worker. What it reduces it reduces among processes of its own on this machine.

Exit codes: 0 all that is required works; 1 something that is required does not; 2 the arguments are wrong, nothing was run; 3 the doctor
itself failed.)";

/// The names for --only, each with that of what it finds first of all in the report.
std::string probes_help() {
  std::string text = "Probes, and what each is called in the report:\n";
  for (const Probe& probe : all_probes()) {
    text += fmt::format("  {:<26}{}\n", probe.name, probe.finding);
  }
  return text;
}

void check_probe(const std::string& name) {
  if (find_probe(name) != nullptr) return;
  std::string all;
  for (const Probe& probe : all_probes())
    all += (all.empty() ? "" : ", ") + std::string(probe.name);
  throw programs::ArgumentError(
      fmt::format("there is no probe '{}'; expected one of {}", name, all));
}

}  // namespace

std::optional<Arguments> parse_arguments(int argc, const char* const* argv) {
  constexpr double kLongest = 3600;
  Arguments arguments;
  double timeout_seconds = arguments.timeout.count();
  CLI::App app{kHead, "crossdevice-doctor"};
  app.set_version_flag("--version", fmt::format("crossdevice-doctor {}", library_version_string()));
  app.footer(probes_help() + kFooter);
  app.add_flag("--json", arguments.writes_json, "Write the report as JSON");
  app.add_option("--only", arguments.only, "Only these probes, separated by commas")
      ->delimiter(',');
  app.add_option("--timeout-seconds", timeout_seconds, "How long a probe may take")
      ->check(CLI::Range(0.001, kLongest))
      ->capture_default_str();
  app.add_option("--probe", arguments.probe,
                 "Run this probe in this process and write what it finds as JSON: for debuggers");
  app.add_option("--worker", arguments.worker)->group("");
  if (!programs::parse_command_line(app, argc, argv)) return std::nullopt;
  arguments.timeout = std::chrono::duration<double>(timeout_seconds);
  for (const std::string& name : arguments.only) check_probe(name);
  if (!arguments.probe.empty()) check_probe(arguments.probe);
  return arguments;
}

}  // namespace crossdevice::doctor
