// SPDX-License-Identifier: Apache-2.0
/// What an exception says.
#pragma once

#include <exception>
#include <string>

namespace crossdevice::detail {

/// what(), or a few words for a null pointer and for exceptions that have none.
[[nodiscard]] inline std::string exception_text(const std::exception_ptr& error) {
  try {
    if (error != nullptr) std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
  }
  return "an exception that is no std::exception";
}

}  // namespace crossdevice::detail
