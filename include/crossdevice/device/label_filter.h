// SPDX-License-Identifier: Apache-2.0
/// Which labels (job, replica, task) mean this process.
#pragma once

#include "crossdevice/core/export.h"

namespace crossdevice {

struct DeviceSpec;

namespace detail {

/// Whether a fully named device's labels are this process's own. Not asked of those that a bare "CPU:0" gets, which always are.
using LabelFilter = bool (*)(const DeviceSpec& device);

/// Narrows what Device::is_present() says, for a floor above that knows the cluster this process
/// has joined. Null, as at first: every label is this process's.
///
/// Threads  any; `filter` is called from any thread and must not throw. What was written before it was set is there when it is called.
CROSSDEVICE_EXPORT void set_label_filter(LabelFilter filter);

}  // namespace detail
}  // namespace crossdevice
