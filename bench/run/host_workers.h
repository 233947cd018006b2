// SPDX-License-Identifier: Apache-2.0
/// The workers of a job on one of several hosts, started where this runs.
#pragma once

#include <string>
#include <vector>

#include "run/host_job.h"
#include "run/supervisor.h"

namespace crossdevice::run {

/// `variables` ("NAME=value") in place of this host's own. Errors   as Supervisor::start().
void start_host_workers(const HostJob& job, const std::string& secret_file,
                        const std::vector<std::string>& variables, Supervisor& supervisor);

}  // namespace crossdevice::run
