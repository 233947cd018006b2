// SPDX-License-Identifier: Apache-2.0
/// crossdevice-run --host-agent: the workers of one host, for a crossdevice-run elsewhere.
#pragma once

namespace crossdevice::run {

/// Reads a HostJob from standard input, runs its workers, and returns their exit code as run_job() does. Each byte that follows the job is a signal's
/// number, or 0; when the input ends, or nothing comes for the job's silence_seconds, whoever started this is gone, and the workers are ended.
///
/// Time     SIGALRM ends this process where the job has not come after five minutes.
/// Errors   CannotExecute; std::runtime_error: no job comes, or it cannot be started.
/// Threads  the process must have no other.
[[nodiscard]] int run_host_agent();

}  // namespace crossdevice::run
