// SPDX-License-Identifier: Apache-2.0
#include "run/forwarded_variables.h"

#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "crossdevice/core/environment.h"

#include "support/program.h"

namespace crossdevice::run {
namespace {

std::string_view name_of(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

std::optional<std::string> find(const char* const* inherited, std::string_view name) {
  for (; *inherited != nullptr; ++inherited) {
    if (name_of(*inherited) == name) return *inherited;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> requested_variables(const char* const* inherited,
                                             const std::vector<std::string>& requests) {
  std::vector<std::string> variables;
  variables.reserve(requests.size());
  for (const std::string& request : requests) {
    if (name_of(request).empty()) {
      throw programs::ArgumentError(
          fmt::format("-x: expected NAME or NAME=VALUE, got '{}'", request));
    }
    if (request.find('=') != std::string::npos) {
      variables.push_back(request);
      continue;
    }
    std::optional<std::string> variable = find(inherited, request);
    if (!variable.has_value()) {
      throw programs::ArgumentError(fmt::format("-x {}: that variable is not set", request));
    }
    variables.push_back(*std::move(variable));
  }
  return variables;
}

std::vector<std::string> forwarded_variables(const char* const* inherited,
                                             const std::vector<std::string>& requests) {
  std::vector<std::string> variables;
  for (const char* const* each = inherited; *each != nullptr; ++each) {
    const std::string_view text = *each;
    if (name_of(text) == kHostIdVariable) continue;
    // NOLINTNEXTLINE(performance-inefficient-vector-operation): their number is not known before
    if (text.starts_with("CROSSDEVICE_") || text.starts_with("NCCL_")) variables.emplace_back(text);
  }
  for (std::string& variable : requested_variables(inherited, requests)) {
    variables.push_back(std::move(variable));
  }
  return variables;
}

std::vector<std::string> with_variables(const char* const* inherited,
                                        const std::vector<std::string>& variables) {
  std::vector<std::string> all;
  const auto set = [&all](std::string_view variable) {
    std::erase_if(all, [&](const std::string& each) { return name_of(each) == name_of(variable); });
    all.emplace_back(variable);
  };
  for (; *inherited != nullptr; ++inherited) all.emplace_back(*inherited);
  for (const std::string& variable : variables) set(variable);
  return all;
}

}  // namespace crossdevice::run
