// SPDX-License-Identifier: Apache-2.0
/// NCCL's codes as errors, at the one edge where they are translated.
#pragma once

#include <string>
#include <string_view>

#include "crossdevice/comm/nccl_api.h"

namespace crossdevice::detail {

/// "ncclCommInitRankConfig: unhandled cuda error (run with NCCL_DEBUG=INFO for details): CUDA driver version is insufficient".
[[nodiscard]] std::string nccl_error_text(const NcclApi& nccl, NcclComm comm, NcclStatus status,
                                          std::string_view what);

/// Does nothing for SUCCESS and IN_PROGRESS (the user's NCCL_COMM_BLOCKING=0 overrides our configuration; who cares, waits for the end of it).
///
/// Errors   UnavailableError: CUDA, the system or a remote rank. InternalError: anything else. The text is NCCL's own.
void require_nccl(const NcclApi& nccl, NcclComm comm, NcclStatus status, std::string_view what);

}  // namespace crossdevice::detail
