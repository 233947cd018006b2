// SPDX-License-Identifier: Apache-2.0
/// The parts of a job's timeline that its workers have written on other hosts.
#pragma once

#include <string>
#include <vector>

#include "run/janitor.h"
#include "run/job_on_hosts.h"

namespace crossdevice::run {

/// crossdevice-run --trace-agent, on the host of the workers: reads from standard input whose parts are wanted, writes these to standard output, and removes
/// them once the other side has said that it has them.
///
/// Errors   std::runtime_error: nothing is wanted, or it cannot be sent.
[[nodiscard]] int run_trace_agent();

/// Brings here, beside `path`, what ranks on other hosts have written there and is not here already, as where hosts share that folder. Says on standard error
/// which host's could not be brought, and why: these stay where they are.
///
/// Time     a host that sends nothing for half a minute is given up. SIGINT and the like end this process from now on.
/// Threads  as start_worker().
void fetch_trace_parts(const std::string& path, const std::vector<HostShare>& shares,
                       const std::string& remote_shell, const Janitor& janitor);

}  // namespace crossdevice::run
