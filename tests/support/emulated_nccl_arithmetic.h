// SPDX-License-Identifier: Apache-2.0
/// NCCL's arithmetic, as its rings do it: pairwise in the element type, in rank order.
#pragma once

#include <cstddef>
#include <span>

#include "crossdevice/comm/nccl_api.h"

namespace crossdevice::testing {

[[nodiscard]] std::size_t size_in_bytes(detail::NcclDataType type);
[[nodiscard]] const char* name_of(detail::NcclDataType type);
[[nodiscard]] const char* name_of(detail::NcclRedOp op);

/// result[i] = inputs[0][i] op inputs[1][i] op ...; floating types below 32 bits are rounded after each operation, MIN and MAX lose NaN.
void reduce_as_nccl(detail::NcclDataType type, detail::NcclRedOp op,
                    std::span<const std::byte* const> inputs, std::byte* result, std::size_t count);

}  // namespace crossdevice::testing
