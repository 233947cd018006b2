// SPDX-License-Identifier: Apache-2.0
/// What an exception says.
#pragma once

#include <exception>
#include <string>

namespace crossdevice::detail {

[[nodiscard]] inline std::string exception_text(const std::exception_ptr& error) {
  try {
    if (error != nullptr) std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
  }
  return "an unknown error";
}

}  // namespace crossdevice::detail
