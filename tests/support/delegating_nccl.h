// SPDX-License-Identifier: Apache-2.0
/// The emulated NCCL behind another table, for tests that change a part of it.
#pragma once

#include <string>

#include "crossdevice/comm/nccl_api.h"

#include "support/emulated_gpus.h"

namespace crossdevice::testing {

class DelegatingNccl : public detail::NcclApi {
 public:
  [[nodiscard]] detail::NcclVersion version() const override { return emulated_nccl().version(); }
  [[nodiscard]] std::string path() const override { return emulated_nccl().path(); }
  [[nodiscard]] std::string error_text(detail::NcclStatus status) const override {
    return emulated_nccl().error_text(status);
  }
  [[nodiscard]] std::string last_error(detail::NcclComm comm) const override {
    return emulated_nccl().last_error(comm);
  }
  detail::NcclStatus get_unique_id(detail::NcclUniqueId* id) override {
    return emulated_nccl().get_unique_id(id);
  }
  detail::NcclStatus comm_init_rank(detail::NcclComm* comm, int num_ranks,
                                    const detail::NcclUniqueId& id, int rank,
                                    const char* name) override {
    return emulated_nccl().comm_init_rank(comm, num_ranks, id, rank, name);
  }
  detail::NcclStatus comm_finalize(detail::NcclComm comm) override {
    return emulated_nccl().comm_finalize(comm);
  }
  detail::NcclStatus comm_destroy(detail::NcclComm comm) override {
    return emulated_nccl().comm_destroy(comm);
  }
  detail::NcclStatus comm_abort(detail::NcclComm comm) override {
    return emulated_nccl().comm_abort(comm);
  }
  detail::NcclStatus comm_revoke(detail::NcclComm comm) override {
    return emulated_nccl().comm_revoke(comm);
  }
  detail::NcclStatus comm_get_async_error(detail::NcclComm comm,
                                          detail::NcclStatus* error) override {
    return emulated_nccl().comm_get_async_error(comm, error);
  }
  detail::NcclStatus comm_user_rank(detail::NcclComm comm, int* rank) override {
    return emulated_nccl().comm_user_rank(comm, rank);
  }
  detail::NcclStatus comm_count(detail::NcclComm comm, int* num_ranks) override {
    return emulated_nccl().comm_count(comm, num_ranks);
  }
  detail::NcclStatus comm_cu_device(detail::NcclComm comm, int* device) override {
    return emulated_nccl().comm_cu_device(comm, device);
  }
  detail::NcclStatus group_start() override { return emulated_nccl().group_start(); }
  detail::NcclStatus group_end() override { return emulated_nccl().group_end(); }
  detail::NcclStatus all_reduce(const void* source, void* destination, std::size_t count,
                                detail::NcclDataType type, detail::NcclRedOp op,
                                detail::NcclComm comm, detail::CudaStream stream) override {
    return emulated_nccl().all_reduce(source, destination, count, type, op, comm, stream);
  }
  detail::NcclStatus reduce(const void* source, void* destination, std::size_t count,
                            detail::NcclDataType type, detail::NcclRedOp op, int root,
                            detail::NcclComm comm, detail::CudaStream stream) override {
    return emulated_nccl().reduce(source, destination, count, type, op, root, comm, stream);
  }
  detail::NcclStatus broadcast(const void* source, void* destination, std::size_t count,
                               detail::NcclDataType type, int root, detail::NcclComm comm,
                               detail::CudaStream stream) override {
    return emulated_nccl().broadcast(source, destination, count, type, root, comm, stream);
  }
  detail::NcclStatus all_gather(const void* source, void* destination, std::size_t count_per_rank,
                                detail::NcclDataType type, detail::NcclComm comm,
                                detail::CudaStream stream) override {
    return emulated_nccl().all_gather(source, destination, count_per_rank, type, comm, stream);
  }
  detail::NcclStatus reduce_scatter(const void* source, void* destination,
                                    std::size_t count_per_rank, detail::NcclDataType type,
                                    detail::NcclRedOp op, detail::NcclComm comm,
                                    detail::CudaStream stream) override {
    return emulated_nccl().reduce_scatter(source, destination, count_per_rank, type, op, comm,
                                          stream);
  }
  detail::NcclStatus send(const void* source, std::size_t count, detail::NcclDataType type,
                          int peer, detail::NcclComm comm, detail::CudaStream stream) override {
    return emulated_nccl().send(source, count, type, peer, comm, stream);
  }
  detail::NcclStatus receive(void* destination, std::size_t count, detail::NcclDataType type,
                             int peer, detail::NcclComm comm, detail::CudaStream stream) override {
    return emulated_nccl().receive(destination, count, type, peer, comm, stream);
  }
};

}  // namespace crossdevice::testing
