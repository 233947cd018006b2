// SPDX-License-Identifier: Apache-2.0
/// What an exception says.
#pragma once

#include <exception>
#include <string>

namespace crossdevice::detail {

/// what(), or a sentence for exceptions that have none. Never of a null pointer.
[[nodiscard]] inline std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace crossdevice::detail
