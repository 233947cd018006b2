// SPDX-License-Identifier: Apache-2.0
/// Communicators' lives, and what tests see. Groups and calls have a file of their own.
#include "support/emulated_nccl.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "support/emulated_nccl_group.h"
#include "support/emulated_nccl_kernel.h"

namespace crossdevice::testing {

using detail::NcclComm;
using detail::NcclStatus;

EmulatedNccl::EmulatedNccl(std::shared_ptr<EmulatedCuda> cuda, detail::NcclVersion version)
    : cuda_(std::move(cuda)),
      machine_(cuda_->machine()),
      version_(version),
      running_(std::make_shared<Running>(machine_)) {}

EmulatedNccl::~EmulatedNccl() = default;

// ---- what every call goes through

std::optional<NcclStatus> EmulatedNccl::begin(Lock& lock, std::string_view function,
                                              const Comm* comm, const void* stream,
                                              std::size_t size_bytes, std::optional<Fault>* fault,
                                              bool is_query) {
  if (HostFunctionScope::is_inside()) {
    machine_.report(lock, fmt::format("{} was called by a host function", function));
    return NcclStatus::INVALID_USAGE;
  }
  if (machine_.is_stopping(lock)) return NcclStatus::SYSTEM_ERROR;
  EmulatedCalls::Outcome outcome =
      cuda_->calls().begin(lock,
                           {function, comm == nullptr ? -1 : comm->device, stream,
                            std::this_thread::get_id(), size_bytes},
                           is_query);
  if (fault != nullptr) *fault = std::move(outcome.operation);
  if (outcome.status.has_value()) {
    return fail(NcclStatus{*outcome.status}, fmt::format("{}: a fault was asked for", function));
  }
  return std::nullopt;
}

EmulatedNccl::Comm* EmulatedNccl::find(Lock& lock, std::string_view function, NcclComm handle,
                                       NcclStatus* status) {
  *status = NcclStatus::INVALID_ARGUMENT;
  if (handle == nullptr) {
    last_error_ = fmt::format("{}: comm argument is NULL", function);
    return nullptr;
  }
  for (const auto& comm : comms_) {
    if (reinterpret_cast<NcclComm>(comm.get()) != handle) continue;
    if (comm->state == Comm::State::READY || comm->state == Comm::State::FINALIZED) {
      return comm.get();
    }
    machine_.report(lock, comm->state == Comm::State::ENDED
                              ? fmt::format("{}: the communicator has been destroyed", function)
                              : fmt::format("{}: the communicator is still being made", function));
    return nullptr;
  }
  machine_.report(lock, fmt::format("{}: no communicator of this NCCL", function));
  return nullptr;
}

NcclStatus EmulatedNccl::fail(NcclStatus status, std::string text) {
  last_error_ = std::move(text);
  return status;
}

detail::NcclVersion EmulatedNccl::version() const {
  const auto lock = machine_.lock();
  return version_;
}

std::string EmulatedNccl::path() const { return "emulated/libnccl.so.2"; }

std::string EmulatedNccl::error_text(NcclStatus status) const {
  switch (status) {
    case NcclStatus::SUCCESS:
      return "no error";
    case NcclStatus::UNHANDLED_CUDA_ERROR:
      return "unhandled cuda error";
    case NcclStatus::SYSTEM_ERROR:
      return "unhandled system error";
    case NcclStatus::INTERNAL_ERROR:
      return "internal error";
    case NcclStatus::INVALID_ARGUMENT:
      return "invalid argument";
    case NcclStatus::INVALID_USAGE:
      return "invalid usage";
    case NcclStatus::REMOTE_ERROR:
      return "remote process exited or there was a network error";
    case NcclStatus::IN_PROGRESS:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}

std::string EmulatedNccl::last_error(NcclComm /*comm*/) const {
  const auto lock = machine_.lock();
  return last_error_;
}

// ---- making

NcclStatus EmulatedNccl::get_unique_id(detail::NcclUniqueId* id) {
  const UncountedAllocations uncounted;
  auto lock = machine_.lock();
  if (const auto refused = begin(lock, "nccl.get_unique_id", nullptr)) return *refused;
  *id = {};
  const std::string text = fmt::format("emulated {}", ++num_ids_);
  std::copy(text.begin(), text.end(), id->bytes.begin());
  return NcclStatus::SUCCESS;
}

NcclStatus EmulatedNccl::comm_init_rank(NcclComm* comm, int num_ranks,
                                        const detail::NcclUniqueId& id, int rank,
                                        const char* name) {
  const UncountedAllocations uncounted;
  auto lock = machine_.lock();
  *comm = nullptr;
  Group& group = this->group();
  if (const auto refused = begin(lock, "nccl.comm_init_rank", nullptr)) return group.keep(*refused);
  if (num_ranks < 1 || rank < 0 || rank >= num_ranks) {
    return group.keep(fail(NcclStatus::INVALID_ARGUMENT,
                           fmt::format("Invalid rank requested : {}/{}", rank, num_ranks)));
  }
  std::shared_ptr<Clique>& clique = cliques_[std::string(id.bytes.begin(), id.bytes.end())];
  if (clique == nullptr) {
    clique = std::make_shared<Clique>();
    clique->num_ranks = static_cast<std::size_t>(num_ranks);
    clique->comms.resize(clique->num_ranks);
  }
  if (clique->num_ranks != static_cast<std::size_t>(num_ranks) ||
      clique->comms[static_cast<std::size_t>(rank)] != nullptr) {
    machine_.report(lock, fmt::format("nccl.comm_init_rank: rank {} of {} with that id came twice, "
                                      "or with another number of ranks",
                                      rank, num_ranks));
    return group.keep(fail(NcclStatus::INVALID_USAGE, "a unique id is for one communicator"));
  }
  auto made = std::make_shared<Comm>();
  made->clique = clique;
  made->rank = rank;
  made->device = cuda_->current_device();
  made->name = name == nullptr ? "" : name;
  *comm = reinterpret_cast<NcclComm>(made.get());
  group.inits.push_back({made.get(), comm});
  comms_.push_back(std::move(made));
  if (group.depth > 0) return NcclStatus::SUCCESS;
  return run(lock, group);
}

// All ranks of this group come at once; each waits for the others of its clique.
NcclStatus EmulatedNccl::run_inits(Lock& lock, Group& group) {
  for (const Group::Init& init : group.inits) {
    Clique& clique = *init.comm->clique;
    for (const Comm* other : clique.comms) {
      if (other == nullptr || other->device != init.comm->device) continue;
      clique.has_failed = true;
      last_error_ =
          fmt::format("Duplicate GPU detected : rank {} and rank {} both on CUDA device {}",
                      other->rank, init.comm->rank, other->device);
    }
    clique.comms[static_cast<std::size_t>(init.comm->rank)] = init.comm;
    ++clique.num_come;
  }
  machine_.notify();
  NcclStatus status = NcclStatus::SUCCESS;
  for (const Group::Init& init : group.inits) {
    const std::shared_ptr<Clique> clique = init.comm->clique;
    const bool have_come = machine_.await_or_release(
        lock, [&] { return clique->has_failed || clique->num_come == clique->num_ranks; });
    if (have_come && !clique->has_failed) {
      init.comm->state = Comm::State::READY;
      continue;
    }
    if (!have_come) last_error_ = "the other ranks of a communicator did not come";
    clique->has_failed = true;
    init.comm->state = Comm::State::ENDED;
    *init.handle = nullptr;
    status = have_come ? NcclStatus::INVALID_USAGE : NcclStatus::INTERNAL_ERROR;
  }
  return status;
}

// ---- the end

void EmulatedNccl::await_kernels(Lock& lock, const Comm& comm) {
  (void)machine_.await(lock, [&] { return comm.num_kernels == 0; });
}

NcclStatus EmulatedNccl::comm_finalize(NcclComm handle) {
  const UncountedAllocations uncounted;
  auto lock = machine_.lock();
  NcclStatus status = NcclStatus::SUCCESS;
  Comm* const comm = find(lock, "nccl.comm_finalize", handle, &status);
  if (comm == nullptr) return group().keep(status);
  if (const auto refused = begin(lock, "nccl.comm_finalize", comm)) return *refused;
  if (comm->is_revoked || comm->state == Comm::State::FINALIZED) {
    return group().keep(fail(NcclStatus::INVALID_USAGE, "finalized twice, or after a revoke"));
  }
  Group& group = this->group();
  group.ends.push_back({comm, Group::EndKind::FINALIZE});
  return group.depth > 0 ? NcclStatus::SUCCESS : run(lock, group);
}

NcclStatus EmulatedNccl::end(std::string_view function, NcclComm handle, bool is_abort) {
  const UncountedAllocations uncounted;
  auto lock = machine_.lock();
  NcclStatus status = NcclStatus::SUCCESS;
  Comm* const comm = find(lock, function, handle, &status);
  if (comm == nullptr) return group().keep(status);
  if (const auto refused = begin(lock, function, comm)) return *refused;
  if (is_abort) {
    comm->is_aborted = true;  // at once: kernels look at it while they wait
    machine_.notify();
  }
  Group& group = this->group();
  group.ends.push_back({comm, is_abort ? Group::EndKind::ABORT : Group::EndKind::DESTROY});
  return group.depth > 0 ? NcclStatus::SUCCESS : run(lock, group);
}

NcclStatus EmulatedNccl::comm_destroy(NcclComm comm) {
  return end("nccl.comm_destroy", comm, false);
}

NcclStatus EmulatedNccl::comm_abort(NcclComm comm) { return end("nccl.comm_abort", comm, true); }

// Each waits, as NCCL does, for its stream to have reached and left its kernels, and for the graphs that captured it.
void EmulatedNccl::run_ends(Lock& lock, Group& group) {
  for (const Group::End& end : group.ends) {
    Comm& comm = *end.comm;
    await_kernels(lock, comm);
    if (end.kind == Group::EndKind::FINALIZE) {
      comm.state = Comm::State::FINALIZED;
      continue;
    }
    (void)machine_.await(lock, [&] {
      const bool is_device_quiet =
          !aborts_wait_for_device_ || running_->of_device[comm.device].empty();
      return comm.num_graphs == 0 && is_device_quiet;
    });
    if (comm.state == Comm::State::ENDED) {
      machine_.report(lock, "a communicator was ended by two threads at once");
      continue;
    }
    comm.state = Comm::State::ENDED;
    ++comm.clique->num_ended;
  }
}

NcclStatus EmulatedNccl::comm_revoke(NcclComm handle) {
  const UncountedAllocations uncounted;
  auto lock = machine_.lock();
  NcclStatus status = NcclStatus::SUCCESS;
  Comm* const comm = find(lock, "nccl.comm_revoke", handle, &status);
  if (comm == nullptr) return status;
  if (const auto refused = begin(lock, "nccl.comm_revoke", comm)) return *refused;
  if (version_ < detail::kNcclWithRevoke) {
    return fail(NcclStatus::INVALID_USAGE, "this NCCL cannot revoke");
  }
  comm->is_revoked = true;
  machine_.notify();
  await_kernels(lock, *comm);
  return NcclStatus::SUCCESS;
}

NcclStatus EmulatedNccl::comm_get_async_error(NcclComm handle, NcclStatus* error) {
  const UncountedAllocations uncounted;
  auto lock = machine_.lock();
  NcclStatus status = NcclStatus::SUCCESS;
  const Comm* const comm = find(lock, "nccl.comm_get_async_error", handle, &status);
  if (comm == nullptr) return status;
  if (const auto refused =
          begin(lock, "nccl.comm_get_async_error", comm, nullptr, 0, nullptr, true)) {
    return *refused;
  }
  *error = comm->async_error;
  if (*error != NcclStatus::SUCCESS) last_error_ = comm->async_text;
  return NcclStatus::SUCCESS;
}

template <class Answer>
NcclStatus EmulatedNccl::ask(std::string_view function, NcclComm handle, int* result,
                             const Answer& answer) {
  auto lock = machine_.lock();
  NcclStatus status = NcclStatus::SUCCESS;
  const Comm* const comm = find(lock, function, handle, &status);
  if (comm == nullptr) return status;
  if (const auto refused = begin(lock, function, comm, nullptr, 0, nullptr, /*is_query=*/true)) {
    return *refused;
  }
  *result = answer(*comm);
  return NcclStatus::SUCCESS;
}

NcclStatus EmulatedNccl::comm_user_rank(NcclComm comm, int* rank) {
  return ask("nccl.comm_user_rank", comm, rank, [](const Comm& asked) { return asked.rank; });
}

NcclStatus EmulatedNccl::comm_count(NcclComm comm, int* num_ranks) {
  return ask("nccl.comm_count", comm, num_ranks,
             [](const Comm& asked) { return static_cast<int>(asked.num_ranks()); });
}

NcclStatus EmulatedNccl::comm_cu_device(NcclComm comm, int* device) {
  return ask("nccl.comm_cu_device", comm, device, [](const Comm& asked) { return asked.device; });
}

// ---- for tests

void EmulatedNccl::set_version(detail::NcclVersion version) {
  const auto lock = machine_.lock();
  version_ = version;
}

void EmulatedNccl::set_exclusive_devices(bool are_exclusive) {
  const auto lock = machine_.lock();
  running_->is_exclusive = are_exclusive;
  machine_.notify();
}

void EmulatedNccl::set_abort_waits_for_device(bool waits) {
  const auto lock = machine_.lock();
  aborts_wait_for_device_ = waits;
}

void EmulatedNccl::set_async_error(NcclComm handle, NcclStatus status, std::string text) {
  auto lock = machine_.lock();
  NcclStatus found = NcclStatus::SUCCESS;
  Comm* const comm = find(lock, "set_async_error", handle, &found);
  if (comm == nullptr) return;
  comm->async_error = status;
  comm->async_text = std::move(text);
}

std::vector<std::string> EmulatedNccl::mismatches() {
  const auto lock = machine_.lock();
  return running_->mismatches;
}

std::size_t EmulatedNccl::num_communicators() {
  const auto lock = machine_.lock();
  return static_cast<std::size_t>(std::count_if(comms_.begin(), comms_.end(), [](const auto& comm) {
    return comm->state != Comm::State::ENDED;
  }));
}

std::size_t EmulatedNccl::num_unreclaimed() {
  const auto lock = machine_.lock();
  std::size_t count = 0;
  for (const auto& [id, clique] : cliques_) {
    if (clique->has_failed || clique->num_ended == clique->num_come) continue;
    count += clique->num_come;
  }
  return count;
}

std::size_t EmulatedNccl::num_kernels() {
  const auto lock = machine_.lock();
  std::size_t count = 0;
  for (const auto& [device, kernels] : running_->of_device) count += kernels.size();
  return count;
}

std::string EmulatedNccl::communicator_name(NcclComm handle) {
  auto lock = machine_.lock();
  NcclStatus status = NcclStatus::SUCCESS;
  const Comm* const comm = find(lock, "communicator_name", handle, &status);
  return comm == nullptr ? "" : comm->name;
}

}  // namespace crossdevice::testing
