// SPDX-License-Identifier: Apache-2.0
/// What the library would say once, and go on without: told from errors that end programs.
#pragma once

#include <functional>
#include <stdexcept>

#include "crossdevice/core/error.h"

namespace crossdevice::doctor {

/// The reason, thrown where something is made, before anything is done with it.
class Refused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The exit code of a probe, or of one of its workers, that has thrown it.
inline constexpr int kExitRefused = 4;

/// What `make` makes.
///
/// Errors   Refused: in the place of UnavailableError and FailedPreconditionError.
template <class Make>
auto make_unless_refused(const Make& make) {
  try {
    return make();
  } catch (const UnavailableError& error) {
    throw Refused(error.what());
  } catch (const FailedPreconditionError& error) {
    throw Refused(error.what());
  }
}

/// What `body` returns; where it throws Refused, which becomes a line on standard error, kExitRefused.
///
/// Errors   what else it throws.
[[nodiscard]] int run_refusable(const std::function<int()>& body);

}  // namespace crossdevice::doctor
