// SPDX-License-Identifier: Apache-2.0
/// What calls throw, as text.
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace crossdevice::testing {

/// The text of the Error that `call` throws; another exception passes; "" when it throws nothing.
template <class Error = std::exception, class F>
std::string thrown(F&& call) {
  try {
    std::forward<F>(call)();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace crossdevice::testing
