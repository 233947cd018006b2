// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/nccl_error.h"

#include <fmt/format.h>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {

std::string nccl_error_text(const NcclApi& nccl, NcclComm comm, NcclStatus status,
                            std::string_view what) {
  // ncclGetLastError is the process's last message, perhaps an older one: it is shown as more, never in the place of the code's own text.
  const std::string last = nccl.last_error(comm);
  return fmt::format("{}: {}{}{}", what, nccl.error_text(status), last.empty() ? "" : ": ", last);
}

void require_nccl(const NcclApi& nccl, NcclComm comm, NcclStatus status, std::string_view what) {
  switch (status) {
    case NcclStatus::SUCCESS:
    case NcclStatus::IN_PROGRESS:
      return;
    case NcclStatus::UNHANDLED_CUDA_ERROR:
    case NcclStatus::SYSTEM_ERROR:
    case NcclStatus::REMOTE_ERROR:
      throw UnavailableError(nccl_error_text(nccl, comm, status, what));
    case NcclStatus::INTERNAL_ERROR:
    case NcclStatus::INVALID_ARGUMENT:
    case NcclStatus::INVALID_USAGE:
      break;
  }
  throw InternalError(nccl_error_text(nccl, comm, status, what));
}

}  // namespace crossdevice::detail
