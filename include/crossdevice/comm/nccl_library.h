// SPDX-License-Identifier: Apache-2.0
/// NCCL as this process has it: loaded on first use, or absent and why.
#pragma once

#include <memory>
#include <string>

#include "crossdevice/comm/nccl_api.h"
#include "crossdevice/core/export.h"

namespace crossdevice::detail {

/// Either a table, or a reason.
struct NcclLibrary {
  std::shared_ptr<NcclApi> api{};
  std::string
      reason_against{};  ///< "built without nccl.h", "libnccl.so.2 was not found (...)", "NCCL 2.12.12 in /usr/lib/... is older than 2.14"
};

/// Looks for libnccl.so.2: where CROSSDEVICE_NCCL_LIBRARY says; the copy that is in the process already; the loader's path; the CUDA toolkit's folder; the
/// nvidia/nccl wheel of the Python environment (VIRTUAL_ENV, CONDA_PREFIX), then of the user and of all users (~/.local, /usr/local). The first that is there
/// counts, found out on the first call, for good; it is never unloaded. Where the process lacks descriptors or memory to load it, that is the reason against it,
/// and the next call looks again.
///
/// Errors   FailedPreconditionError: in a child of fork() of a process that used the library.
/// Threads  any.
[[nodiscard]] CROSSDEVICE_EXPORT NcclLibrary nccl_library();

/// For tests: what nccl_library() is to return, from its first call on.
///
/// Errors   FailedPreconditionError: somebody has asked already.
CROSSDEVICE_EXPORT void set_nccl_library(NcclLibrary library);

}  // namespace crossdevice::detail
