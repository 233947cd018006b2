// SPDX-License-Identifier: Apache-2.0
/// What every program shares: its exit codes, and errors that end as one line instead of a raw exception.
#pragma once

#include <functional>
#include <stdexcept>
#include <string_view>

namespace crossdevice::programs {

/// The same in all programs; their --help says so.
inline constexpr int kExitOk = 0;
inline constexpr int kExitWrongValues = 1;   ///< results were checked and found wrong
inline constexpr int kExitBadArguments = 2;  ///< nothing was run
inline constexpr int kExitFailed = 3;  ///< the run failed: a file is missing, an operation threw

/// The lines of --help that state them.
inline constexpr std::string_view kExitCodesHelp =
    "Exit codes: 0 all went well; 1 results were wrong; 2 the arguments are wrong, nothing was "
    "run; "
    "3 the run failed.";

/// Wrong arguments on the command line.
class ArgumentError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Runs `body` and returns its exit code; what it throws becomes one line on standard error and kExitBadArguments
/// (ArgumentError, ValueError) or kExitFailed (anything else), and so does a success whose standard output could not be written.
[[nodiscard]] int run_program(std::string_view name, const std::function<int()>& body);

}  // namespace crossdevice::programs
