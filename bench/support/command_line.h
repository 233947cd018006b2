// SPDX-License-Identifier: Apache-2.0
/// From CLI11's ways of saying how parsing ended to ours.
#pragma once

#include <cmath>
#include <string>

#include <CLI/CLI.hpp>

#include "support/program.h"

namespace crossdevice::programs {

/// As CLI::PositiveNumber and CLI::NonNegativeNumber, which say in 300 digits how large a number may be.
inline CLI::Validator number_that(const char* must_be, bool (*is_so)(double)) {
  return {[must_be, is_so](std::string& text) -> std::string {
            double value = 0;
            if (CLI::detail::lexical_cast(text, value) && std::isfinite(value) && is_so(value))
              return {};
            return "expected a number " + std::string(must_be) + ", not " + text;
          },
          ""};
}
inline CLI::Validator above_zero() {
  auto validator = number_that("above 0", [](double value) { return value > 0; });
  return validator.description("POSITIVE");
}
inline CLI::Validator not_negative() {
  auto validator = number_that("of at least 0", [](double value) { return value >= 0; });
  return validator.description("NONNEGATIVE");
}

/// Parses the command line; false: --help or --version was asked for and has been printed.
///
/// Errors   ArgumentError: CLI11's text of what is wrong.
[[nodiscard]] inline bool parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {  // --help, --version
    app.exit(done);
    return false;
  } catch (const CLI::ParseError& error) {
    throw ArgumentError(error.what());
  }
  return true;
}

}  // namespace crossdevice::programs
