// SPDX-License-Identifier: Apache-2.0
/// From the command line to the list of cases.
#pragma once

#include <vector>

#include "collective/arguments.h"
#include "collective/case_buffers.h"

namespace crossdevice::bench {

/// Cases that are measured in turns with each other: one, or with --gradients the flat buffer and the batch.
using CaseGroup = std::vector<Case>;

/// Every size of every dtype and reduction that fit together; sizes are rounded down to whole elements (gather: of every device).
/// Cases are worker 0's.
///
/// Errors   ArgumentError: a single dtype and reduction that do not fit together, a gradient list that cannot be read, more memory than there is.
[[nodiscard]] std::vector<CaseGroup> plan_cases(const Arguments& arguments);

}  // namespace crossdevice::bench
