// SPDX-License-Identifier: Apache-2.0
/// A worker of the fault campaign: makes the plan's calls, suffers its fault if it is the victim, goes on with who is left, and tells what happens.
#pragma once

#include "chaos/plan.h"

namespace crossdevice::chaos {

/// The process's exit status. Lines of report.h go to `report_fd`; a byte or an end on `go_fd` ends an AWAIT.
int run_worker(const Plan& plan, int rank, int report_fd, int go_fd);

}  // namespace crossdevice::chaos
