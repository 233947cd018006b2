// SPDX-License-Identifier: Apache-2.0
/// --workers N: this program again, N times, as crossdevice-run would start it.
#pragma once

#include "collective/arguments.h"

namespace crossdevice::bench {

/// Runs this program with the same command line as every worker of a job and returns the job's exit code: 0, or the status of the worker that
/// failed first. Rank 0's output is this process's.
///
/// Errors   std::runtime_error: the job cannot be started.
/// Threads  the process must have no other.
[[nodiscard]] int start_workers(const WorkerArguments& workers, int argc, const char* const* argv);

}  // namespace crossdevice::bench
