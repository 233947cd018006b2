// SPDX-License-Identifier: Apache-2.0
/// One probe in a process of its own, so that one that crashes or hangs is a finding, and not the end.
#pragma once

#include <chrono>

#include "doctor/finding.h"
#include "doctor/probe.h"

namespace crossdevice::doctor {

/// This program again, with --probe and the name. Ends at the latest some two seconds behind the timeout: the process is killed, and what it was
/// to find is a FAILURE that says so, as is what an exception or a signal ends; a SHORTFALL where nobody needs it.
///
/// Errors   std::runtime_error: no process can be started.
[[nodiscard]] Findings run_in_process(const Probe& probe, std::chrono::duration<double> timeout);

/// The other side of it: runs the probe and writes what it finds to standard output; the exit code. Before anything else of the process: the probe's
/// bars go to no timeline.
[[nodiscard]] int serve_probe(const Probe& probe);

}  // namespace crossdevice::doctor
