// SPDX-License-Identifier: Apache-2.0
/// NCCL over emulated GPUs: collectives that really reduce, and really hang where NCCL's would.
///
/// Kernels  a collective's kernel runs in its stream's order, one at a time on a device, in the order of their launches (with set_exclusive_devices(false):
///          one at a time on a communicator). It ends when the kernels of all ranks with the same number have come; it leaves when its communicator is
///          aborted or revoked. So whoever launches in different orders on different devices, or leaves out a rank, waits for ever, as on real GPUs.
/// First use  the first collective of a communicator connects on the caller's thread, and waits there for all ranks: calls for several ranks outside a
///          group hang.
/// Reported  what NCCL leaves undefined, as a violation of EmulatedCuda; arguments that differ between ranks, in mismatches().
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/comm/nccl_api.h"

#include "support/emulated_cuda.h"

namespace crossdevice::testing {

/// What one rank calls.
struct NcclCall {
  enum class Kind : std::uint8_t {
    ALL_REDUCE,
    REDUCE,
    BROADCAST,
    ALL_GATHER,
    REDUCE_SCATTER,
    SEND,
    RECEIVE
  };
  Kind kind = Kind::ALL_REDUCE;
  const void* source = nullptr;
  void* destination = nullptr;
  std::size_t count = 0;
  detail::NcclDataType type = detail::NcclDataType::FLOAT32;
  detail::NcclRedOp op = detail::NcclRedOp::SUM;
  int root_or_peer = 0;
  [[nodiscard]] bool is_p2p() const { return kind == Kind::SEND || kind == Kind::RECEIVE; }
};

/// Threads  any, as the table's. Ends with its CUDA: after EmulatedCuda::stop() whatever waits gives up.
class EmulatedNccl final : public detail::NcclApi {
 public:
  explicit EmulatedNccl(std::shared_ptr<EmulatedCuda> cuda, detail::NcclVersion version = 22809);
  ~EmulatedNccl() override;
  EmulatedNccl(const EmulatedNccl&) = delete;
  EmulatedNccl& operator=(const EmulatedNccl&) = delete;

  // ---- for tests; calls and faults are EmulatedCuda's: "nccl.all_reduce", and "nccl.launch" before each kernel that is launched
  void set_version(detail::NcclVersion version);
  void set_exclusive_devices(bool are_exclusive);
  /// Whether an abort waits for the kernels of other communicators on its device, as the cudaFree inside it does.
  void set_abort_waits_for_device(bool waits);
  void set_async_error(detail::NcclComm comm, detail::NcclStatus status, std::string text);
  /// Calls with the same number whose arguments differ between ranks. Where sizes or kinds differ they hang, else they corrupt.
  [[nodiscard]] std::vector<std::string> mismatches();
  /// Communicators that were made, and neither destroyed nor aborted.
  [[nodiscard]] std::size_t num_communicators();
  /// Whose memory NCCL still holds: also those that ended before a sibling.
  [[nodiscard]] std::size_t num_unreclaimed();
  /// Kernels that were launched and have not ended.
  [[nodiscard]] std::size_t num_kernels();
  [[nodiscard]] std::string communicator_name(detail::NcclComm comm);

  // ---- NcclApi
  [[nodiscard]] detail::NcclVersion version() const override;
  [[nodiscard]] std::string path() const override;
  [[nodiscard]] std::string error_text(detail::NcclStatus status) const override;
  [[nodiscard]] std::string last_error(detail::NcclComm comm) const override;
  detail::NcclStatus get_unique_id(detail::NcclUniqueId* id) override;
  detail::NcclStatus comm_init_rank(detail::NcclComm* comm, int num_ranks,
                                    const detail::NcclUniqueId& id, int rank,
                                    const char* name) override;
  detail::NcclStatus comm_finalize(detail::NcclComm comm) override;
  detail::NcclStatus comm_destroy(detail::NcclComm comm) override;
  detail::NcclStatus comm_abort(detail::NcclComm comm) override;
  detail::NcclStatus comm_revoke(detail::NcclComm comm) override;
  detail::NcclStatus comm_get_async_error(detail::NcclComm comm,
                                          detail::NcclStatus* error) override;
  detail::NcclStatus comm_user_rank(detail::NcclComm comm, int* rank) override;
  detail::NcclStatus comm_count(detail::NcclComm comm, int* num_ranks) override;
  detail::NcclStatus comm_cu_device(detail::NcclComm comm, int* device) override;
  detail::NcclStatus group_start() override;
  detail::NcclStatus group_end() override;
  detail::NcclStatus all_reduce(const void* source, void* destination, std::size_t count,
                                detail::NcclDataType type, detail::NcclRedOp op,
                                detail::NcclComm comm, detail::CudaStream stream) override;
  detail::NcclStatus reduce(const void* source, void* destination, std::size_t count,
                            detail::NcclDataType type, detail::NcclRedOp op, int root,
                            detail::NcclComm comm, detail::CudaStream stream) override;
  detail::NcclStatus broadcast(const void* source, void* destination, std::size_t count,
                               detail::NcclDataType type, int root, detail::NcclComm comm,
                               detail::CudaStream stream) override;
  detail::NcclStatus all_gather(const void* source, void* destination, std::size_t count_per_rank,
                                detail::NcclDataType type, detail::NcclComm comm,
                                detail::CudaStream stream) override;
  detail::NcclStatus reduce_scatter(const void* source, void* destination,
                                    std::size_t count_per_rank, detail::NcclDataType type,
                                    detail::NcclRedOp op, detail::NcclComm comm,
                                    detail::CudaStream stream) override;
  detail::NcclStatus send(const void* source, std::size_t count, detail::NcclDataType type,
                          int peer, detail::NcclComm comm, detail::CudaStream stream) override;
  detail::NcclStatus receive(void* destination, std::size_t count, detail::NcclDataType type,
                             int peer, detail::NcclComm comm, detail::CudaStream stream) override;

  // ---- the parts of it
  struct Comm;
  struct Clique;
  struct Kernel;
  struct Group;

 private:
  using Lock = EmulatedMachine::Lock;
  struct Launch;

  /// Notes the call; what it must return at once.
  std::optional<detail::NcclStatus> begin(Lock& lock, std::string_view function, const Comm* comm,
                                          const void* stream = nullptr, std::size_t size_bytes = 0,
                                          std::optional<Fault>* fault = nullptr,
                                          bool is_query = false);
  /// A communicator that may be used. Null: `status` says why not.
  Comm* find(Lock& lock, std::string_view function, detail::NcclComm comm,
             detail::NcclStatus* status);
  detail::NcclStatus fail(detail::NcclStatus status, std::string text);
  /// A call that asks a communicator for a number.
  template <class Answer>
  detail::NcclStatus ask(std::string_view function, detail::NcclComm comm, int* result,
                         const Answer& answer);
  detail::NcclStatus call(std::string_view function, NcclCall call, detail::NcclComm comm,
                          detail::CudaStream stream);
  [[nodiscard]] detail::NcclStatus check(Lock& lock, const Comm& comm, const NcclCall& call);
  Group& group();
  detail::NcclStatus run(Lock& lock, Group& group);
  detail::NcclStatus run_inits(Lock& lock, Group& group);
  void run_ends(Lock& lock, Group& group);
  detail::NcclStatus run_calls(Lock& lock, Group& group);
  detail::NcclStatus connect(Lock& lock, const Group& group);
  detail::NcclStatus launch(Lock& lock, const Launch& launch);
  void await_kernels(Lock& lock, const Comm& comm);
  detail::NcclStatus end(std::string_view function, detail::NcclComm comm, bool is_abort);

  const std::shared_ptr<EmulatedCuda> cuda_;
  EmulatedMachine& machine_;
  detail::NcclVersion version_;
  bool aborts_wait_for_device_ = false;
  std::string last_error_;
  std::uint64_t num_ids_ = 0;
  std::vector<std::shared_ptr<Comm>> comms_;  // for ever, so that a handle is never used twice
  std::map<std::string, std::shared_ptr<Clique>> cliques_;  // by unique id
  struct Running;  // outlives this as long as a kernel does
  std::shared_ptr<Running> running_;
};

}  // namespace crossdevice::testing
