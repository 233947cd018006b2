// SPDX-License-Identifier: Apache-2.0
/// From CLI11's ways of saying how parsing ended to ours.
#pragma once

#include <CLI/CLI.hpp>

#include "support/program.h"

namespace crossdevice::programs {

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
