// SPDX-License-Identifier: Apache-2.0
/// NCCL's functions in the library that was loaded.
#pragma once

#include <string>

#include <nccl.h>

#include "crossdevice/comm/nccl_api.h"

namespace crossdevice::detail {

/// Named as in NCCL, without "nccl".
struct NcclFunctions {
  decltype(&::ncclGetVersion) get_version;
  decltype(&::ncclGetErrorString) get_error_string;
  decltype(&::ncclGetLastError) get_last_error;
  decltype(&::ncclGetUniqueId) get_unique_id;
  decltype(&::ncclCommInitRankConfig) comm_init_rank_config;
  decltype(&::ncclCommFinalize) comm_finalize;
  decltype(&::ncclCommDestroy) comm_destroy;
  decltype(&::ncclCommAbort) comm_abort;
  decltype(&::ncclCommGetAsyncError) comm_get_async_error;
  decltype(&::ncclCommUserRank) comm_user_rank;
  decltype(&::ncclCommCount) comm_count;
  decltype(&::ncclCommCuDevice) comm_cu_device;
  decltype(&::ncclGroupStart) group_start;
  decltype(&::ncclGroupEnd) group_end;
  decltype(&::ncclAllReduce) all_reduce;
  decltype(&::ncclReduce) reduce;
  decltype(&::ncclBroadcast) broadcast;
  decltype(&::ncclAllGather) all_gather;
  decltype(&::ncclReduceScatter) reduce_scatter;
  decltype(&::ncclSend) send;
  decltype(&::ncclRecv) receive;
  /// Null before 2.28.7; spelled out, because an older nccl.h does not declare it.
  ncclResult_t (*comm_revoke)(ncclComm_t comm, int flags);
};

/// What a library file turned out to be.
struct NcclFile {
  NcclFunctions functions{};
  NcclVersion version = 0;
  std::string path;
  std::string reason_against;  ///< empty: it can be used
};

/// `handle` as dlopen() gave it.
[[nodiscard]] NcclFile read_nccl_file(void* handle);

}  // namespace crossdevice::detail
