// SPDX-License-Identifier: Apache-2.0
/// Failed system calls as errors with the reason the system gives.
#pragma once

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

namespace crossdevice::run {

/// "cannot make a pipe: Too many open files"; reads errno.
[[nodiscard]] inline std::runtime_error system_failure(const std::string& what, int error = errno) {
  return std::runtime_error("cannot " + what + ": " + std::generic_category().message(error));
}

}  // namespace crossdevice::run
