// SPDX-License-Identifier: Apache-2.0
/// What the library asks of NCCL, as a table: the real one calls the library that was loaded, tests put an emulation in its place.
///
/// One function for one ncclXxx, with its meaning. No vendor header: the same code is compiled, and tested, where there is no NCCL.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/export.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/cuda_api.h"

struct ncclComm;

namespace crossdevice::detail {

using NcclComm = ncclComm*;  // ncclComm_t

/// ncclResult_t; a code that is not here is carried as it came.
enum class NcclStatus : int {
  SUCCESS = 0,
  UNHANDLED_CUDA_ERROR = 1,
  SYSTEM_ERROR = 2,
  INTERNAL_ERROR = 3,
  INVALID_ARGUMENT = 4,
  INVALID_USAGE = 5,
  REMOTE_ERROR = 6,
  IN_PROGRESS = 7,
};

/// ncclDataType_t.
enum class NcclDataType : int {
  INT8 = 0,
  UINT8 = 1,
  INT32 = 2,
  UINT32 = 3,
  INT64 = 4,
  UINT64 = 5,
  FLOAT16 = 6,
  FLOAT32 = 7,
  FLOAT64 = 8,
  BFLOAT16 = 9,
  FLOAT8_E4M3 = 10,
  FLOAT8_E5M2 = 11,
};

/// ncclRedOp_t; ncclAvg is never used (it rounds each input, and switches NVLS off).
enum class NcclRedOp : int { SUM = 0, PROD = 1, MAX = 2, MIN = 3 };

struct NcclUniqueId {
  std::array<char, 128> bytes{};
};

/// 22809 is 2.28.9, as ncclGetVersion says.
using NcclVersion = int;
inline constexpr NcclVersion kMinimumNcclVersion = 21400;
inline constexpr NcclVersion kNcclWithFloat8 = 22400;
inline constexpr NcclVersion kNcclWithGroupAbort = 22200;
inline constexpr NcclVersion kNcclWithRevoke = 22807;

/// Order    as NCCL's: a call outside a group is a group of its own; calls inside one are launched by the outermost group_end(). One thread that
///          serves several GPUs puts their calls into one group.
/// Errors   as status codes; nothing throws.
/// Threads  a communicator belongs to one thread at a time; a group to the thread that began it.
class CROSSDEVICE_EXPORT NcclApi {
 public:
  NcclApi() = default;
  NcclApi(const NcclApi&) = delete;
  NcclApi& operator=(const NcclApi&) = delete;
  virtual ~NcclApi() = default;

  /// Of the library that is loaded.
  [[nodiscard]] virtual NcclVersion version() const = 0;
  /// Which file that is.
  [[nodiscard]] virtual std::string path() const = 0;
  [[nodiscard]] virtual std::string error_text(NcclStatus status) const = 0;
  /// ncclGetLastError: the process's last message, which may be an older one; `comm` may be null.
  [[nodiscard]] virtual std::string last_error(NcclComm comm) const = 0;

  virtual NcclStatus get_unique_id(NcclUniqueId* id) = 0;
  /// ncclCommInitRankConfig, blocking, on the current device. `name` shows in NCCL's own logs where it knows names (2.27).
  virtual NcclStatus comm_init_rank(NcclComm* comm, int num_ranks, const NcclUniqueId& id, int rank,
                                    const char* name) = 0;
  virtual NcclStatus comm_finalize(NcclComm comm) = 0;
  virtual NcclStatus comm_destroy(NcclComm comm) = 0;
  virtual NcclStatus comm_abort(NcclComm comm) = 0;
  /// INVALID_USAGE before kNcclWithRevoke.
  virtual NcclStatus comm_revoke(NcclComm comm) = 0;
  virtual NcclStatus comm_get_async_error(NcclComm comm, NcclStatus* error) = 0;
  virtual NcclStatus comm_user_rank(NcclComm comm, int* rank) = 0;
  virtual NcclStatus comm_count(NcclComm comm, int* num_ranks) = 0;
  /// CUDA's number of its device.
  virtual NcclStatus comm_cu_device(NcclComm comm, int* device) = 0;

  virtual NcclStatus group_start() = 0;
  virtual NcclStatus group_end() = 0;

  virtual NcclStatus all_reduce(const void* source, void* destination, std::size_t count,
                                NcclDataType type, NcclRedOp op, NcclComm comm,
                                CudaStream stream) = 0;
  virtual NcclStatus reduce(const void* source, void* destination, std::size_t count,
                            NcclDataType type, NcclRedOp op, int root, NcclComm comm,
                            CudaStream stream) = 0;
  virtual NcclStatus broadcast(const void* source, void* destination, std::size_t count,
                               NcclDataType type, int root, NcclComm comm, CudaStream stream) = 0;
  virtual NcclStatus all_gather(const void* source, void* destination, std::size_t count_per_rank,
                                NcclDataType type, NcclComm comm, CudaStream stream) = 0;
  virtual NcclStatus reduce_scatter(const void* source, void* destination,
                                    std::size_t count_per_rank, NcclDataType type, NcclRedOp op,
                                    NcclComm comm, CudaStream stream) = 0;
  virtual NcclStatus send(const void* source, std::size_t count, NcclDataType type, int peer,
                          NcclComm comm, CudaStream stream) = 0;
  virtual NcclStatus receive(void* destination, std::size_t count, NcclDataType type, int peer,
                             NcclComm comm, CudaStream stream) = 0;
};

/// How NCCL reduces elements of `dtype` by `op`; MEAN as the sum that it begins with, bool as bytes, complex numbers as two.
/// Nothing where NCCL cannot (products of complex numbers, 16-bit integers, float8 before 2.24 or below compute capability 9.0), or not with our arithmetic (MIN and MAX of floating types, in which NCCL loses NaN; MEAN of
/// integers, whose result has another dtype).
struct NcclReduction {
  NcclDataType type = NcclDataType::FLOAT32;
  NcclRedOp op = NcclRedOp::SUM;
  std::size_t parts = 1;  ///< NCCL's elements to one of ours
};
[[nodiscard]] CROSSDEVICE_EXPORT std::optional<NcclReduction> nccl_reduction(
    ReduceOp op, DType dtype, NcclVersion version, int compute_capability);

}  // namespace crossdevice::detail
