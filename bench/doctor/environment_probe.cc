// SPDX-License-Identifier: Apache-2.0
/// CROSSDEVICE_*: what is set, whether it can be, and names that mean nothing.
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crossdevice/collective/all_reduce_choice.h"
#include "crossdevice/comm/secret_file.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"

#include "doctor/known_variables.h"
#include "doctor/probes.h"

namespace crossdevice::doctor {
namespace {

constexpr std::string_view kPrefix = "CROSSDEVICE_";

std::vector<std::string> variables_that_are_set() {
  std::vector<std::string> all;
  for (const char* const* each = environ; *each != nullptr; ++each) {
    const std::string_view text = *each;
    if (text.starts_with(kPrefix)) all.emplace_back(text);
  }
  std::sort(all.begin(), all.end());
  return all;
}

bool is_known(std::string_view name) {
  return std::find(kKnownVariables.begin(), kKnownVariables.end(), name) != kKnownVariables.end();
}

Finding find_set_variables(const std::vector<std::string>& all) {
  Finding finding{.name = "environment"};
  for (const std::string& each : all) {
    const auto equals = each.find('=');
    finding.facts[each.substr(0, equals)] = each.substr(equals + 1);
    finding.text += (finding.text.empty() ? "" : " ") + each;
  }
  if (all.empty()) finding.text = "no CROSSDEVICE_* is set: defaults";
  try {
    (void)environment();
  } catch (const ValueError& error) {
    finding.status = Status::FAILURE;
    finding.text = error.what();
    finding.advice =
        "correct the variable, or unset it; every program of the library ends with this error";
  }
  return finding;
}

/// As the library itself reads it.
void add_secret_file(Findings& findings) {
  const std::string path = process_environment()(kSecretFileVariable).value_or("");
  if (path.empty()) return;
  Finding finding{.name = "secret file", .text = path};
  try {
    (void)detail::read_secret(path);
  } catch (const ValueError& error) {
    finding.status = Status::FAILURE;
    finding.text = error.what();
    struct stat status {};
    constexpr unsigned kOthers = 077;
    const bool is_open_to_others = ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
                                   (status.st_mode & kOthers) != 0U;
    finding.advice = is_open_to_others
                         ? fmt::format("chmod 600 {}", path)
                         : fmt::format(
                               "put the same file on every machine, for its owner only: "
                               "(umask 077; head -c 32 /dev/urandom | base64 > {})",
                               path);
  }
  findings.push_back(std::move(finding));
}

/// As rank 0 of a job reads it.
void add_tuning_file(Findings& findings) {
  const std::string& path = environment().tuning_file;
  if (path.empty()) return;
  Finding finding{.name = "tuning file", .text = path};
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  try {
    if (!text) throw ValueError("it cannot be read, or is empty");
    if (text.str().size() > kMaxTuningBytes) throw ValueError("it is longer than a tuning can be");
    (void)parse_all_reduce_tuning(text.str());
  } catch (const ValueError& error) {
    finding.status = Status::FAILURE;
    finding.text = fmt::format("{}: {}", path, error.what());
    finding.advice =
        "correct the file, or unset CROSSDEVICE_TUNING_FILE: jobs whose rank 0 reads it end with "
        "this error";
  }
  findings.push_back(std::move(finding));
}

void add_unwritable(Findings& findings, const char* variable, const std::string& path, int why) {
  findings.push_back(
      {.name = variable,
       .status = Status::SHORTFALL,
       .text = fmt::format("{} cannot be written: {}", path, std::generic_category().message(why)),
       .advice =
           fmt::format("make its folder, or set {} to a file that can be written", variable)});
}

bool can_make_files_in(const std::string& folder) {
  return ::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) == 0;
}

/// The file is opened, and made where it is not there. The library warns of it, too, when it begins.
void add_trace_file(Findings& findings, const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (path.empty() || folder.find('%') != std::string::npos) return;  // it depends on who writes
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored)) {
    return add_unwritable(findings, "CROSSDEVICE_TRACE", path, EISDIR);
  }
  if (::access(path.c_str(), W_OK) == 0) return;
  if (errno == ENOENT && can_make_files_in(folder)) return;
  add_unwritable(findings, "CROSSDEVICE_TRACE", path, errno);
}

/// A new file takes its place, when something has failed: too late to learn that it cannot.
void add_flight_record(Findings& findings, const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (path.empty() || folder.find('%') != std::string::npos) return;
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored)) {
    return add_unwritable(findings, "CROSSDEVICE_FLIGHT_RECORD", path, EISDIR);
  }
  if (!can_make_files_in(folder)) {
    add_unwritable(findings, "CROSSDEVICE_FLIGHT_RECORD", path, errno);
  }
}

}  // namespace

Findings probe_environment() {
  const std::vector<std::string> all = variables_that_are_set();
  Findings findings{find_set_variables(all)};
  for (const std::string& each : all) {
    const std::string name = each.substr(0, each.find('='));
    if (is_known(name)) continue;
    findings.push_back(
        {.name = "unknown variable",
         .status = Status::SHORTFALL,
         .text = fmt::format("{} is read by nobody", name),
         .advice = fmt::format(
             "unset {}, or correct its spelling: core/environment.h has all names", name)});
  }
  add_secret_file(findings);
  if (!is_healthy(findings))
    return findings;  // then environment() throws, or else that comes first
  add_tuning_file(findings);
  add_trace_file(findings, environment().trace);
  add_flight_record(findings, environment().flight_record);
  return findings;
}

}  // namespace crossdevice::doctor
