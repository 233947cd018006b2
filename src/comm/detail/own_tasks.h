// SPDX-License-Identifier: Apache-2.0
/// Which tasks of a cluster this process is.
#pragma once

#include <string>

namespace crossdevice::detail {

/// From now on other tasks' devices are not this process's, unless it is theirs too: see logical_workers.h. A process whose threads are several workers is
/// all of them. For the life of the process: values of a cluster that is gone still lie on its devices.
///
/// Threads  any.
void add_own_task(const std::string& job, int task);

}  // namespace crossdevice::detail
