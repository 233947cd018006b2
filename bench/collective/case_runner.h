// SPDX-License-Identifier: Apache-2.0
/// Who makes the calls that are measured: ours, or a library that ours is held against.
#pragma once

#include <functional>
#include <string>

#include "crossdevice/ops/communication_options.h"

#include "collective/case_buffers.h"
#include "collective/collective.h"
#include "support/named_ops.h"

namespace crossdevice::bench {

struct CaseRunner {
  std::string name;       ///< the row's "ops"
  std::string algorithm;  ///< the row's
  /// Runs a case once, from its buffers' inputs to its outputs.
  std::function<void(const Case& test_case, const CaseBuffers& buffers, Placement placement)> run;
};

/// Calls the operation of the case.
[[nodiscard]] CaseRunner run_with(programs::NamedOps ops, std::string algorithm,
                                  const CommunicationOptions& options = {});

}  // namespace crossdevice::bench
