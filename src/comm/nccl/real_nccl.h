// SPDX-License-Identifier: Apache-2.0
/// The table over the library that was loaded.
#pragma once

#include <memory>

#include "crossdevice/comm/nccl_api.h"

#include "comm/nccl/nccl_functions.h"

namespace crossdevice::detail {

/// `file`: one that can be used.
[[nodiscard]] std::shared_ptr<NcclApi> make_real_nccl(NcclFile file);

}  // namespace crossdevice::detail
