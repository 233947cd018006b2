// SPDX-License-Identifier: Apache-2.0
/// An environment that a test writes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "crossdevice/core/environment.h"

namespace crossdevice {

using Variables = std::map<std::string, std::string>;

/// Looks variables up in a copy of `variables`.
inline EnvironmentSource source_of(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

}  // namespace crossdevice
