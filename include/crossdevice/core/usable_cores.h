// SPDX-License-Identifier: Apache-2.0
/// Which cores this process may run on.
#pragma once

#include <set>
#include <span>

#include "crossdevice/core/export.h"

namespace crossdevice::detail {

/// The cores in the main thread's affinity mask: what taskset, cpusets and launchers leave the process. Not the calling
/// thread's, which may have been bound to a core of its own. Empty where the system does not say.
[[nodiscard]] CROSSDEVICE_EXPORT std::set<int> usable_cores();

/// Whether processes that may run on these cores can have one each, all at the same time. Launchers bind: two processes with one core each do not
/// share it, and two that may both run on the same one do.
[[nodiscard]] bool can_have_a_core_each(std::span<const std::set<int>> usable);

}  // namespace crossdevice::detail
