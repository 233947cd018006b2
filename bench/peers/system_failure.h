// SPDX-License-Identifier: Apache-2.0
/// For programs with nothing of the library.
#pragma once

#include <cerrno>
#include <system_error>

namespace crossdevice::bench {

/// What errno says of `what`.
[[noreturn]] inline void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace crossdevice::bench
