// SPDX-License-Identifier: Apache-2.0
/// What happens when NCCL is asked for and cannot work.
#pragma once

#include <string>
#include <string_view>

#include "crossdevice/device/device.h"

namespace crossdevice::detail {

/// Why NCCL cannot reduce over these devices, as far as can be said without asking it; empty: nothing is known against it.
[[nodiscard]] std::string reason_against_nccl(const Devices& devices);

/// Says, once for each reason and for what happens `instead` ("the host reduces"), that `who` wanted NCCL for `devices`.
///
/// Errors   FailedPreconditionError: CROSSDEVICE_STRICT=1 forbids the fall-back.
void announce_nccl_fallback(std::string_view who, const Devices& devices, const std::string& reason,
                            std::string_view instead);
/// The same where the host reduces for hosts and our kernels for GPUs.
void announce_nccl_fallback(std::string_view who, const Devices& devices,
                            const std::string& reason);
/// The same with what reason_against_nccl() says; nothing where that is nothing.
void announce_nccl_fallback(std::string_view who, const Devices& devices);

}  // namespace crossdevice::detail
