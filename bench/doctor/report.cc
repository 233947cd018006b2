// SPDX-License-Identifier: Apache-2.0
#include "doctor/report.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <set>
#include <sstream>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include "crossdevice/core/version.h"

namespace crossdevice::doctor {
namespace {

constexpr std::size_t kNameWidth = 25;
constexpr std::size_t kMarkWidth = 4;
constexpr std::size_t kTextAt = 2 + kNameWidth + 2 + kMarkWidth + 2;
constexpr std::size_t kWidth = 120;

struct Mark {
  const char* word;
  const char* colour;
};

Mark mark_of(Status status) {
  switch (status) {
    case Status::OK:
      return {"ok", "\033[32m"};
    case Status::ABSENT:
      return {"-", "\033[2m"};
    case Status::SKIPPED:
      return {"?", "\033[2m"};
    case Status::SHORTFALL:
      return {"!", "\033[33m"};
    case Status::FAILURE:
      return {"FAIL", "\033[1;31m"};
  }
  return {"?", ""};
}

std::string coloured(const std::string& text, const char* colour, Colours colours) {
  if (colours == Colours::NO) return text;
  return fmt::format("{}{}\033[0m", colour, text);
}

/// Cut at blanks; what follows the first line begins at column `indent`.
std::string wrapped(const std::string& text, std::size_t indent) {
  std::istringstream words(text);
  std::string all;
  std::size_t column = indent;
  for (std::string word; words >> word;) {
    if (column > indent && column + 1 + word.size() > kWidth) {
      all += '\n';
      all.append(indent, ' ');
      column = indent;
    }
    if (column > indent) {
      all += ' ';
      ++column;
    }
    all += word;
    column += word.size();
  }
  return all;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

/// What all of `status` advise; the same advice once.
std::string advice_for(const Findings& findings, Status status) {
  std::string all;
  std::set<std::string> said;
  for (const Finding& finding : findings) {
    if (finding.status != status || !said.insert(finding.advice).second) continue;
    all += fmt::format("  {}\n", wrapped(fmt::format("- {}: {}", finding.name, finding.advice), 4));
  }
  return all;
}

std::size_t count(const Findings& findings, Status status) {
  return static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(),
                    [&](const Finding& each) { return each.status == status; }));
}

}  // namespace

std::string report_head() {
  return fmt::format("crossdevice-doctor {} on {}, {}\n\n", library_version_string(), host_name(),
                     now());
}

std::string report_line(const Finding& finding, Colours colours) {
  const Mark mark = mark_of(finding.status);
  return fmt::format("  {:<{}}  {}  {}\n", finding.name, kNameWidth,
                     coloured(fmt::format("{:<{}}", mark.word, kMarkWidth), mark.colour, colours),
                     wrapped(finding.text, kTextAt));
}

std::string report_end(const Findings& findings, Colours colours) {
  const std::size_t failures = count(findings, Status::FAILURE);
  const std::size_t shortfalls = count(findings, Status::SHORTFALL);
  std::string text = "\n";
  if (failures == 0) {
    text += coloured("All that is required works.", mark_of(Status::OK).colour, colours);
  } else {
    text += coloured(
        fmt::format("{} of what is required {} not work:", failures, failures == 1 ? "does" : "do"),
        mark_of(Status::FAILURE).colour, colours);
    text += '\n';
    text += advice_for(findings, Status::FAILURE);
  }
  if (shortfalls == 0) return failures == 0 ? text + "\n" : text;
  text += failures == 0 ? " Could be better:\n" : "Could be better:\n";
  return text + advice_for(findings, Status::SHORTFALL);
}

std::string json_report(const Findings& findings) {
  nlohmann::ordered_json report;
  report["program"] = "crossdevice-doctor";
  report["version"] = library_version_string();
  report["host"] = host_name();
  report["time"] = now();
  report["healthy"] = is_healthy(findings);
  report["findings"] = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) report["findings"].push_back(to_json(finding));
  using Handler = nlohmann::ordered_json::error_handler_t;
  return report.dump(2, ' ', false, Handler::replace) + "\n";
}

}  // namespace crossdevice::doctor
