// SPDX-License-Identifier: Apache-2.0
#if defined(CROSSDEVICE_WITH_NCCL)

#include "comm/nccl/real_nccl.h"

#include <cstring>
#include <utility>

namespace crossdevice::detail {
namespace {

// The table's numbers are NCCL's.
static_assert(static_cast<int>(NcclStatus::SUCCESS) == ncclSuccess);
static_assert(static_cast<int>(NcclStatus::UNHANDLED_CUDA_ERROR) == ncclUnhandledCudaError);
static_assert(static_cast<int>(NcclStatus::SYSTEM_ERROR) == ncclSystemError);
static_assert(static_cast<int>(NcclStatus::INTERNAL_ERROR) == ncclInternalError);
static_assert(static_cast<int>(NcclStatus::INVALID_ARGUMENT) == ncclInvalidArgument);
static_assert(static_cast<int>(NcclStatus::INVALID_USAGE) == ncclInvalidUsage);
static_assert(static_cast<int>(NcclStatus::REMOTE_ERROR) == ncclRemoteError);
static_assert(static_cast<int>(NcclStatus::IN_PROGRESS) == ncclInProgress);
static_assert(static_cast<int>(NcclDataType::INT8) == ncclInt8);
static_assert(static_cast<int>(NcclDataType::UINT8) == ncclUint8);
static_assert(static_cast<int>(NcclDataType::INT32) == ncclInt32);
static_assert(static_cast<int>(NcclDataType::UINT32) == ncclUint32);
static_assert(static_cast<int>(NcclDataType::INT64) == ncclInt64);
static_assert(static_cast<int>(NcclDataType::UINT64) == ncclUint64);
static_assert(static_cast<int>(NcclDataType::FLOAT16) == ncclFloat16);
static_assert(static_cast<int>(NcclDataType::FLOAT32) == ncclFloat32);
static_assert(static_cast<int>(NcclDataType::FLOAT64) == ncclFloat64);
#if defined(__CUDA_BF16_TYPES_EXIST__)
static_assert(static_cast<int>(NcclDataType::BFLOAT16) == ncclBfloat16);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
static_assert(static_cast<int>(NcclDataType::FLOAT8_E4M3) == ncclFloat8e4m3);
static_assert(static_cast<int>(NcclDataType::FLOAT8_E5M2) == ncclFloat8e5m2);
#endif
static_assert(static_cast<int>(NcclRedOp::SUM) == ncclSum);
static_assert(static_cast<int>(NcclRedOp::PROD) == ncclProd);
static_assert(static_cast<int>(NcclRedOp::MAX) == ncclMax);
static_assert(static_cast<int>(NcclRedOp::MIN) == ncclMin);
static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));

NcclStatus status_of(ncclResult_t result) { return static_cast<NcclStatus>(result); }
ncclDataType_t native(NcclDataType type) { return static_cast<ncclDataType_t>(type); }
ncclRedOp_t native(NcclRedOp op) { return static_cast<ncclRedOp_t>(op); }

std::string text_or_nothing(const char* text) { return text == nullptr ? "" : text; }

class RealNccl final : public NcclApi {
 public:
  explicit RealNccl(NcclFile file) : file_(std::move(file)), nccl_(file_.functions) {}

  [[nodiscard]] NcclVersion version() const override { return file_.version; }
  [[nodiscard]] std::string path() const override { return file_.path; }
  [[nodiscard]] std::string error_text(NcclStatus status) const override {
    return text_or_nothing(nccl_.get_error_string(static_cast<ncclResult_t>(status)));
  }
  [[nodiscard]] std::string last_error(NcclComm comm) const override {
    return text_or_nothing(nccl_.get_last_error(comm));
  }

  NcclStatus get_unique_id(NcclUniqueId* id) override {
    ncclUniqueId made{};
    const ncclResult_t result = nccl_.get_unique_id(&made);
    std::memcpy(id->bytes.data(), &made, sizeof made);
    return status_of(result);
  }
  NcclStatus comm_init_rank(NcclComm* comm, int num_ranks, const NcclUniqueId& id, int rank,
                            const char* name) override {
    ncclUniqueId given{};
    std::memcpy(&given, id.bytes.data(), sizeof given);
    // Says its own size and version, by which an older library takes what it knows of it.
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    config.commName = name;
#else
    (void)name;
#endif
    return status_of(nccl_.comm_init_rank_config(comm, num_ranks, given, rank, &config));
  }
  NcclStatus comm_finalize(NcclComm comm) override { return status_of(nccl_.comm_finalize(comm)); }
  NcclStatus comm_destroy(NcclComm comm) override { return status_of(nccl_.comm_destroy(comm)); }
  NcclStatus comm_abort(NcclComm comm) override { return status_of(nccl_.comm_abort(comm)); }
  NcclStatus comm_revoke(NcclComm comm) override {
    if (nccl_.comm_revoke == nullptr) return NcclStatus::INVALID_USAGE;
    return status_of(nccl_.comm_revoke(comm, /*flags=*/0));
  }
  NcclStatus comm_get_async_error(NcclComm comm, NcclStatus* error) override {
    ncclResult_t found = ncclSuccess;
    const ncclResult_t result = nccl_.comm_get_async_error(comm, &found);
    *error = status_of(found);
    return status_of(result);
  }
  NcclStatus comm_user_rank(NcclComm comm, int* rank) override {
    return status_of(nccl_.comm_user_rank(comm, rank));
  }
  NcclStatus comm_count(NcclComm comm, int* num_ranks) override {
    return status_of(nccl_.comm_count(comm, num_ranks));
  }
  NcclStatus comm_cu_device(NcclComm comm, int* device) override {
    return status_of(nccl_.comm_cu_device(comm, device));
  }

  NcclStatus group_start() override { return status_of(nccl_.group_start()); }
  NcclStatus group_end() override { return status_of(nccl_.group_end()); }

  NcclStatus all_reduce(const void* source, void* destination, std::size_t count, NcclDataType type,
                        NcclRedOp op, NcclComm comm, CudaStream stream) override {
    return status_of(
        nccl_.all_reduce(source, destination, count, native(type), native(op), comm, stream));
  }
  NcclStatus reduce(const void* source, void* destination, std::size_t count, NcclDataType type,
                    NcclRedOp op, int root, NcclComm comm, CudaStream stream) override {
    return status_of(
        nccl_.reduce(source, destination, count, native(type), native(op), root, comm, stream));
  }
  NcclStatus broadcast(const void* source, void* destination, std::size_t count, NcclDataType type,
                       int root, NcclComm comm, CudaStream stream) override {
    return status_of(nccl_.broadcast(source, destination, count, native(type), root, comm, stream));
  }
  NcclStatus all_gather(const void* source, void* destination, std::size_t count_per_rank,
                        NcclDataType type, NcclComm comm, CudaStream stream) override {
    return status_of(
        nccl_.all_gather(source, destination, count_per_rank, native(type), comm, stream));
  }
  NcclStatus reduce_scatter(const void* source, void* destination, std::size_t count_per_rank,
                            NcclDataType type, NcclRedOp op, NcclComm comm,
                            CudaStream stream) override {
    return status_of(nccl_.reduce_scatter(source, destination, count_per_rank, native(type),
                                          native(op), comm, stream));
  }
  NcclStatus send(const void* source, std::size_t count, NcclDataType type, int peer, NcclComm comm,
                  CudaStream stream) override {
    return status_of(nccl_.send(source, count, native(type), peer, comm, stream));
  }
  NcclStatus receive(void* destination, std::size_t count, NcclDataType type, int peer,
                     NcclComm comm, CudaStream stream) override {
    return status_of(nccl_.receive(destination, count, native(type), peer, comm, stream));
  }

 private:
  NcclFile file_;
  NcclFunctions nccl_;
};

}  // namespace

std::shared_ptr<NcclApi> make_real_nccl(NcclFile file) {
  return std::make_shared<RealNccl>(std::move(file));
}

}  // namespace crossdevice::detail

#endif
