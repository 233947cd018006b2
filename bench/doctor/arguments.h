// SPDX-License-Identifier: Apache-2.0
/// crossdevice-doctor's command line.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace crossdevice::doctor {

struct Arguments {
  bool writes_json = false;
  std::vector<std::string> only;              ///< probes; none: all
  std::chrono::duration<double> timeout{60};  ///< for each probe
  std::string probe;   ///< what this process is to run and report; empty: it starts the others
  std::string worker;  ///< one of the workers of a probe: the path of run_worker()
};

/// Nothing: --help or --version was asked for and printed.
///
/// Errors   programs::ArgumentError.
[[nodiscard]] std::optional<Arguments> parse_arguments(int argc, const char* const* argv);

}  // namespace crossdevice::doctor
