// SPDX-License-Identifier: Apache-2.0
/// One job: what its workers share, and its end.
#pragma once

#include "run/arguments.h"

namespace crossdevice::run {

/// Runs the job to its end and returns its exit code. Without a file for its timeline that is CROSSDEVICE_TRACE's; where that asks for a file for each process
/// (%p, %r), each worker writes its own.
///
/// Errors   CannotExecute; std::runtime_error: the job cannot be started. Nothing of it runs then.
/// Threads  the process must have no other.
[[nodiscard]] int run_job(const Arguments& arguments);

}  // namespace crossdevice::run
