// SPDX-License-Identifier: Apache-2.0
/// Which devices a strategy takes when nobody names any.
#pragma once

#include "crossdevice/device/device.h"

namespace crossdevice::detail {

/// Of worker `local_rank` of `num_local_workers` on this machine: every GPU whose index is local_rank modulo num_local_workers; CPU:0 where there is
/// none.
[[nodiscard]] Devices default_devices(int local_rank = 0, int num_local_workers = 1);

}  // namespace crossdevice::detail
