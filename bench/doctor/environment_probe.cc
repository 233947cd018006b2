// SPDX-License-Identifier: Apache-2.0
/// CROSSDEVICE_*: what is set, whether it can be, and names that mean nothing.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crossdevice/collective/tuning_file.h"
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
  Finding finding{.name = "tuning file", .text = environment().tuning_file};
  if (finding.text.empty()) return;
  try {
    (void)detail::read_tuning_file();
  } catch (const ValueError& error) {
    finding.status = Status::FAILURE;
    finding.text = error.what();
    finding.advice =
        "correct the file, or unset CROSSDEVICE_TUNING_FILE: jobs whose rank 0 reads it end with "
        "this error";
  }
  findings.push_back(std::move(finding));
}

/// Whether a file is opened where it lies, or another one takes its place.
enum class Writing : std::uint8_t { IN_PLACE, BY_A_NEW_FILE };

/// 0, or why not.
int why_unwritable(const std::string& path, const std::string& folder, Writing how) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return EISDIR;
  if (how == Writing::IN_PLACE) {
    if (::access(path.c_str(), W_OK) == 0) return 0;
    if (errno != ENOENT) return errno;
  }
  return ::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
}

void add_output_file(Findings& findings, const char* variable, const std::string& path,
                     Writing how) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (path.empty() || folder.find('%') != std::string::npos) return;  // it depends on who writes
  const int why = why_unwritable(path, folder, how);
  if (why == 0) return;
  findings.push_back(
      {.name = variable,
       .status = Status::SHORTFALL,
       .text = fmt::format("{} cannot be written: {}", path, std::generic_category().message(why)),
       .advice =
           fmt::format("make its folder, or set {} to a file that can be written", variable)});
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
             "unset {}, or correct its spelling: crossdevice/core/environment.h has all names",
             name)});
  }
  add_secret_file(findings);
  if (!is_healthy(findings))
    return findings;  // then environment() throws, or else that comes first
  add_tuning_file(findings);
  add_output_file(findings, "CROSSDEVICE_TRACE", environment().trace, Writing::IN_PLACE);
  add_output_file(findings, "CROSSDEVICE_FLIGHT_RECORD", environment().flight_record,
                  Writing::BY_A_NEW_FILE);
  return findings;
}

}  // namespace crossdevice::doctor
