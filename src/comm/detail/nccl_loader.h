// SPDX-License-Identifier: Apache-2.0
/// Loads the real NCCL. In a build without nccl.h this says so.
#pragma once

#include "crossdevice/comm/nccl_library.h"

namespace crossdevice::detail {

[[nodiscard]] NcclLibrary load_nccl();

}  // namespace crossdevice::detail
