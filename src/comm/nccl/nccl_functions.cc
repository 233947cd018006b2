// SPDX-License-Identifier: Apache-2.0
#if defined(CROSSDEVICE_WITH_NCCL)

#include "comm/nccl/nccl_functions.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "comm/detail/nccl_loader.h"

namespace crossdevice::detail {
namespace {

static_assert(NCCL_VERSION_CODE >= kMinimumNcclVersion,
              "nccl.h is older than 2.14, the first with ncclConfig_t");

template <class Function>
void find(void* handle, const char* name, Function& function, NcclFile& file) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (function == nullptr && file.reason_against.empty()) {
    file.reason_against = fmt::format("{} has no {}", file.path, name);
  }
}

std::string path_of(const void* address) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "libnccl.so.2";
  return info.dli_fname;
}

}  // namespace

NcclFile read_nccl_file(void* handle) {
  NcclFile file;
  NcclFunctions& all = file.functions;
  all.get_version = reinterpret_cast<decltype(all.get_version)>(::dlsym(handle, "ncclGetVersion"));
  if (all.get_version == nullptr) {
    file.reason_against = "is not an NCCL: it has no ncclGetVersion";
    return file;
  }
  file.path = path_of(reinterpret_cast<const void*>(all.get_version));
  int version = 0;
  if (all.get_version(&version) != ncclSuccess) {
    file.reason_against = file.path + " does not tell its version";
    return file;
  }
  file.version = version;
  if (version < kMinimumNcclVersion) {
    file.reason_against = fmt::format("NCCL {} in {} is older than {}", nccl_version_text(version),
                                      file.path, nccl_version_text(kMinimumNcclVersion));
    return file;
  }
  find(handle, "ncclGetErrorString", all.get_error_string, file);
  find(handle, "ncclGetLastError", all.get_last_error, file);
  find(handle, "ncclGetUniqueId", all.get_unique_id, file);
  find(handle, "ncclCommInitRankConfig", all.comm_init_rank_config, file);
  find(handle, "ncclCommFinalize", all.comm_finalize, file);
  find(handle, "ncclCommDestroy", all.comm_destroy, file);
  find(handle, "ncclCommAbort", all.comm_abort, file);
  find(handle, "ncclCommGetAsyncError", all.comm_get_async_error, file);
  find(handle, "ncclCommUserRank", all.comm_user_rank, file);
  find(handle, "ncclCommCount", all.comm_count, file);
  find(handle, "ncclCommCuDevice", all.comm_cu_device, file);
  find(handle, "ncclGroupStart", all.group_start, file);
  find(handle, "ncclGroupEnd", all.group_end, file);
  find(handle, "ncclAllReduce", all.all_reduce, file);
  find(handle, "ncclReduce", all.reduce, file);
  find(handle, "ncclBroadcast", all.broadcast, file);
  find(handle, "ncclAllGather", all.all_gather, file);
  find(handle, "ncclReduceScatter", all.reduce_scatter, file);
  find(handle, "ncclSend", all.send, file);
  find(handle, "ncclRecv", all.receive, file);
  if (version >= kNcclWithRevoke) find(handle, "ncclCommRevoke", all.comm_revoke, file);
  return file;
}

}  // namespace crossdevice::detail

#endif
