// SPDX-License-Identifier: Apache-2.0
#include "doctor/finding.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace crossdevice::doctor {
namespace {

constexpr std::array kStatuses{Status::OK, Status::ABSENT, Status::SKIPPED, Status::SHORTFALL,
                               Status::FAILURE};

Status status_from(const std::string& word) {
  const auto* const found = std::find_if(kStatuses.begin(), kStatuses.end(),
                                         [&](Status each) { return word == to_string(each); });
  if (found == kStatuses.end()) throw std::runtime_error("'" + word + "' is no status");
  return *found;
}

}  // namespace

const char* to_string(Status status) {
  switch (status) {
    case Status::OK:
      return "ok";
    case Status::ABSENT:
      return "absent";
    case Status::SKIPPED:
      return "skipped";
    case Status::SHORTFALL:
      return "shortfall";
    case Status::FAILURE:
      return "failure";
  }
  return "?";
}

bool is_healthy(const Findings& findings) {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& each) { return each.status == Status::FAILURE; });
}

nlohmann::ordered_json to_json(const Finding& finding) {
  nlohmann::ordered_json object;
  object["name"] = finding.name;
  object["status"] = to_string(finding.status);
  object["text"] = finding.text;
  object["advice"] = finding.advice;
  object["facts"] = finding.facts;
  return object;
}

Findings findings_from_json(const std::string& text) {
  try {
    Findings findings;
    const auto array = nlohmann::ordered_json::parse(text);
    findings.reserve(array.size());
    for (const auto& object : array) {
      findings.push_back({.name = object.at("name").get<std::string>(),
                          .status = status_from(object.at("status").get<std::string>()),
                          .text = object.at("text").get<std::string>(),
                          .advice = object.at("advice").get<std::string>(),
                          .facts = object.at("facts")});
    }
    return findings;
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(error.what());
  }
}

}  // namespace crossdevice::doctor
