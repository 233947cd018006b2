// SPDX-License-Identifier: Apache-2.0
/// Messages between threads of one process.
#pragma once

#include <memory>
#include <vector>

#include "crossdevice/comm/transport.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// The transports of `num_ranks` members, by rank, each for a thread of its own. They end in any order; a message to or from one that has ended is an
/// UnavailableError.
///
/// Memory   the receiver's thread copies from the sender's memory.
/// Errors   ValueError: num_ranks < 1.
[[nodiscard]] CROSSDEVICE_EXPORT std::vector<std::unique_ptr<Transport>> make_in_process_transports(
    int num_ranks);

}  // namespace crossdevice
