// SPDX-License-Identifier: Apache-2.0
/// What a probe has found, as plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace crossdevice::doctor {

enum class Status : std::uint8_t {
  OK,
  ABSENT,     ///< not here, and nothing needs it
  SKIPPED,    ///< not looked at, because of a failure elsewhere
  SHORTFALL,  ///< what is required works, but slower, or only in part
  FAILURE,    ///< something that is required does not work
};

/// One line of the report.
struct Finding {
  std::string name;  ///< "shared memory"
  Status status = Status::OK;
  std::string text{};    ///< what is there
  std::string advice{};  ///< what to do; said wherever something falls short, else empty
  nlohmann::ordered_json facts =
      nlohmann::ordered_json::object();  ///< the text's figures, for programs
};

/// What one probe has found, in the order in which it is shown.
using Findings = std::vector<Finding>;

/// "ok", "absent", "skipped", "shortfall", "failure".
[[nodiscard]] const char* to_string(Status status);

/// Whether all that is required works.
[[nodiscard]] bool is_healthy(const Findings& findings);

[[nodiscard]] nlohmann::ordered_json to_json(const Finding& finding);

/// What to_json() has made.
///
/// Errors   std::runtime_error: it is nothing of that kind.
[[nodiscard]] Findings findings_from_json(const std::string& text);

}  // namespace crossdevice::doctor
