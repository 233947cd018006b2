// SPDX-License-Identifier: Apache-2.0
#include "device/detail/first_use.h"

#include "crossdevice/core/trace.h"
#include "crossdevice/device/shutdown.h"

#include "device/detail/nvtx_ranges.h"

namespace crossdevice::detail {

void begin_first_use() {
  install_nvtx_ranges();
  stop_at_shutdown(&stop_trace_thread);
}

}  // namespace crossdevice::detail
