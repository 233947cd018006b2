// SPDX-License-Identifier: Apache-2.0
/// What happens when NCCL is asked for and cannot work.
#pragma once

#include <string_view>

#include "crossdevice/device/device.h"

namespace crossdevice::detail {

/// Says, once for each reason, that `who` wanted NCCL for `devices` and that the host reduces instead.
///
/// Errors   FailedPreconditionError: CROSSDEVICE_STRICT=1 forbids the fall-back.
void announce_nccl_fallback(std::string_view who, const Devices& devices);

}  // namespace crossdevice::detail
