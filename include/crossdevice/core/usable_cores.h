// SPDX-License-Identifier: Apache-2.0
/// Which cores this process may run on.
#pragma once

#include <set>

namespace crossdevice::detail {

/// The cores in the main thread's affinity mask: what taskset, cpusets and launchers leave the process. Not the calling
/// thread's, which may have been bound to a core of its own. Empty where the system does not say.
[[nodiscard]] std::set<int> usable_cores();

}  // namespace crossdevice::detail
