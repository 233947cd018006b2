// SPDX-License-Identifier: Apache-2.0
/// Transports of which one fails at a message that a test chooses.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "crossdevice/comm/transport.h"

namespace crossdevice::testing {

/// When a transport is to fail, and what it says then. Of the thread that sends.
struct PlannedFailure {
  static constexpr std::size_t kNever = ~std::size_t{0};

  std::string text;
  std::size_t num_sends_left = kNever;  // so many begin yet; the next one fails
};

/// make_in_process_transports(num_ranks), with one between rank `failing` and its own that passes everything on and fails as `plan` says, with an InternalError
/// that blames that rank.
///
/// Memory   `plan` outlives the transports.
[[nodiscard]] std::vector<std::unique_ptr<Transport>> make_failing_transports(int num_ranks,
                                                                              int failing,
                                                                              PlannedFailure& plan);

}  // namespace crossdevice::testing
