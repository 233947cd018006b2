// SPDX-License-Identifier: Apache-2.0
/// One probe in a process of its own, so that one that crashes or hangs is a finding, and not the end.
#pragma once

#include <chrono>
#include <functional>
#include <stdexcept>

#include "crossdevice/core/error.h"

#include "doctor/finding.h"
#include "doctor/probe.h"

namespace crossdevice::doctor {

/// This program again, with --probe and the name. Ends at the latest some two seconds behind the timeout: the process is killed, and what it was
/// to find is a FAILURE that says so, as is what an exception or a signal ends; a SHORTFALL where nobody needs it.
///
/// Errors   std::runtime_error: no process can be started.
[[nodiscard]] Findings run_in_process(const Probe& probe, std::chrono::duration<double> timeout);

/// Of what the library would say once, and go on without: a reason, thrown where it is found, before anything is done with it.
class Refused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// The exit code of a probe, or of one of its workers, that has thrown it.
inline constexpr int kExitRefused = 4;

/// What `make` makes. Errors   Refused: in the place of UnavailableError and FailedPreconditionError.
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

/// The other side of it: runs the probe and writes what it finds to standard output; the exit code. Before anything else of the process: the probe's
/// bars go to no timeline.
[[nodiscard]] int serve_probe(const Probe& probe);

}  // namespace crossdevice::doctor
