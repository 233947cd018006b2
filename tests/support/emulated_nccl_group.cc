// SPDX-License-Identifier: Apache-2.0
/// Groups, collectives and messages of emulated NCCL.
#include "support/emulated_nccl_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "support/emulated_nccl.h"
#include "support/emulated_nccl_arithmetic.h"
#include "support/emulated_nccl_kernel.h"

namespace crossdevice::testing {

using detail::CudaStatus;
using detail::CudaStream;
using detail::NcclComm;
using detail::NcclDataType;
using detail::NcclRedOp;
using detail::NcclStatus;
using Kind = NcclCall::Kind;

EmulatedNccl::Group& EmulatedNccl::group() {
  static thread_local Group own;
  if (own.owner != this) {
    own = Group();
    own.owner = this;
  }
  return own;
}

NcclStatus EmulatedNccl::group_start() {
  const UncountedAllocations uncounted;
  auto lock = machine_.lock();
  if (const auto refused = begin(lock, "nccl.group_start", nullptr)) return *refused;
  ++group().depth;
  return NcclStatus::SUCCESS;
}

NcclStatus EmulatedNccl::group_end() {
  const UncountedAllocations uncounted;
  auto lock = machine_.lock();
  Group& group = this->group();
  if (group.depth == 0) return fail(NcclStatus::INVALID_USAGE, "group_end without group_start");
  const auto refused = begin(lock, "nccl.group_end", nullptr);
  if (--group.depth > 0) return refused.value_or(group.error);
  if (refused.has_value()) group.error = *refused;
  return run(lock, group);
}

// What the group holds is moved out first: the thread may be kept here for long, and is in no group then.
NcclStatus EmulatedNccl::run(Lock& lock, Group& group) {
  Group held = std::exchange(group, Group());
  group.owner = this;
  NcclStatus status = held.error;
  const int kinds = static_cast<int>(!held.inits.empty()) +
                    static_cast<int>(!held.launches.empty() || !held.ends.empty());
  if (status == NcclStatus::SUCCESS && kinds > 1) {
    status = fail(NcclStatus::INVALID_USAGE, "communicators are made in groups of their own");
  }
  if (status == NcclStatus::SUCCESS) {
    if (!held.inits.empty()) status = run_inits(lock, held);
    if (!held.launches.empty()) status = run_calls(lock, held);
  } else {
    for (const Group::Init& init : held.inits) {
      init.comm->clique->has_failed = true;
      init.comm->state = Comm::State::ENDED;
      *init.handle = nullptr;
    }
    machine_.notify();
  }
  // Also after an error: an abort must not depend on what else went wrong.
  run_ends(lock, held);
  for (const Launch& launch : held.launches) launch.comm->user = {};
  return status;
}

// ---- calls

NcclStatus EmulatedNccl::check(Lock& lock, const Comm& comm, const NcclCall& call) {
  if (comm.is_revoked) return fail(NcclStatus::INVALID_USAGE, "communicator was revoked");
  if (comm.is_aborted || comm.state == Comm::State::FINALIZED) {
    machine_.report(lock, "a communicator was used after its abort or finalize");
    return fail(NcclStatus::INVALID_USAGE, "the communicator is no longer to be used");
  }
  const bool is_float8 =
      call.type == NcclDataType::FLOAT8_E4M3 || call.type == NcclDataType::FLOAT8_E5M2;
  if (is_float8 && version_ < detail::kNcclWithFloat8) {
    return fail(NcclStatus::INVALID_ARGUMENT,
                fmt::format("invalid type {}", static_cast<int>(call.type)));
  }
  const bool is_rank_given =
      call.is_p2p() || call.kind == Kind::REDUCE || call.kind == Kind::BROADCAST;
  if (is_rank_given &&
      (call.root_or_peer < 0 || static_cast<std::size_t>(call.root_or_peer) >= comm.num_ranks())) {
    return fail(NcclStatus::INVALID_ARGUMENT, fmt::format("invalid root or peer {} (nranks {})",
                                                          call.root_or_peer, comm.num_ranks()));
  }
  return NcclStatus::SUCCESS;
}

NcclStatus EmulatedNccl::call(std::string_view function, NcclCall call, NcclComm handle,
                              CudaStream stream) {
  const UncountedAllocations uncounted;
  auto lock = machine_.lock();
  Group& group = this->group();
  NcclStatus status = NcclStatus::SUCCESS;
  Comm* const comm = find(lock, function, handle, &status);
  if (comm == nullptr) return group.keep(status);
  std::optional<Fault> fault;
  if (const auto refused =
          begin(lock, function, comm, stream, call.count * size_in_bytes(call.type), &fault)) {
    return group.keep(*refused);
  }
  if (status = check(lock, *comm, call); status != NcclStatus::SUCCESS) return group.keep(status);
  if (comm->user != std::thread::id() && comm->user != std::this_thread::get_id()) {
    machine_.report(lock, fmt::format("{}: two threads use one communicator at once", function));
  }
  comm->user = std::this_thread::get_id();
  const auto is_messages_of_comm = [&](const Launch& launch) {
    return launch.comm == comm && launch.calls.front().is_p2p();
  };
  const auto messages =
      std::find_if(group.launches.begin(), group.launches.end(), is_messages_of_comm);
  if (call.is_p2p() && messages != group.launches.end()) {
    messages->calls.push_back(call);
  } else {
    group.launches.push_back({comm, {call}, stream, std::move(fault)});
  }
  return group.depth > 0 ? NcclStatus::SUCCESS : run(lock, group);
}

NcclStatus EmulatedNccl::run_calls(Lock& lock, Group& group) {
  std::erase_if(group.launches, [](const Launch& launch) {
    if (launch.calls.size() > 1 || launch.calls.front().count > 0) return false;
    launch.comm->user = {};
    return true;
  });
  std::size_t num_captured = 0;
  for (const Launch& launch : group.launches) {
    const EmulatedStream* const stream =
        cuda_->find_stream(lock, launch.stream, launch.comm->device);
    if (stream == nullptr || stream->device != launch.comm->device) {
      machine_.report(lock,
                      fmt::format("a communicator of device {} was given a stream of {}",
                                  launch.comm->device, stream == nullptr ? -1 : stream->device));
      return fail(NcclStatus::UNHANDLED_CUDA_ERROR, "invalid resource handle");
    }
    if (stream->capture != nullptr) ++num_captured;
  }
  if (num_captured != 0 && num_captured != group.launches.size()) {
    return fail(NcclStatus::INVALID_USAGE,
                "Either none or all communicators in a ncclGroup() can be CUDA graph captured");
  }
  if (const NcclStatus status = connect(lock, group); status != NcclStatus::SUCCESS) return status;
  for (const Launch& each : group.launches) {
    if (const NcclStatus status = launch(lock, each); status != NcclStatus::SUCCESS) return status;
  }
  return NcclStatus::SUCCESS;
}

// The first collective of a communicator makes its connections, on this thread.
NcclStatus EmulatedNccl::connect(Lock& lock, const Group& group) {
  std::vector<Comm*> fresh;
  for (const Launch& launch : group.launches) {
    Comm& comm = *launch.comm;
    if (comm.has_connected || comm.num_ranks() == 1 || launch.calls.front().is_p2p()) continue;
    const EmulatedStream* const stream = cuda_->find_stream(lock, launch.stream, comm.device);
    if (stream->capture != nullptr && stream->capture->mode == CaptureMode::GLOBAL) {
      (void)cuda_->invalidate(lock, *stream->capture, CudaStatus::STREAM_CAPTURE_UNSUPPORTED);
      return fail(NcclStatus::UNHANDLED_CUDA_ERROR,
                  "a first collective allocates, which a global capture does not permit");
    }
    comm.has_connected = true;
    ++comm.clique->num_connected;
    fresh.push_back(&comm);
  }
  if (fresh.empty()) return NcclStatus::SUCCESS;
  machine_.notify();
  const auto is_given_up = [&] {
    return std::any_of(fresh.begin(), fresh.end(),
                       [](const Comm* comm) { return comm->is_aborted || comm->is_revoked; });
  };
  const auto have_come = [&] {
    return std::all_of(fresh.begin(), fresh.end(), [](const Comm* comm) {
      return comm->clique->num_connected == comm->num_ranks();
    });
  };
  const bool is_ready =
      machine_.await_or_release(lock, [&] { return is_given_up() || have_come(); });
  if (is_ready && !is_given_up()) return NcclStatus::SUCCESS;
  return fail(NcclStatus::INTERNAL_ERROR, "the connections of a communicator were given up");
}

NcclStatus EmulatedNccl::launch(Lock& lock, const Launch& launch) {
  // Others may launch between two kernels of this group, as on real devices.
  lock.unlock();
  lock.lock();
  Comm& comm = *launch.comm;
  if (const auto refused =
          begin(lock, "nccl.launch", &comm, launch.stream, 0, nullptr, /*is_query=*/true)) {
    return *refused;
  }
  if (comm.is_aborted || comm.is_revoked) {
    return fail(NcclStatus::INTERNAL_ERROR, "the communicator was given up meanwhile");
  }
  EmulatedStream* const stream = cuda_->find_stream(lock, launch.stream, comm.device);
  if (stream == nullptr) return fail(NcclStatus::UNHANDLED_CUDA_ERROR, "invalid resource handle");
  if (cuda_->kept(lock, comm.device) != CudaStatus::SUCCESS) {
    return fail(NcclStatus::UNHANDLED_CUDA_ERROR,
                cuda_->error_text(cuda_->kept(lock, comm.device)));
  }
  std::vector<MemoryUse> uses;
  uses.reserve(2 * launch.calls.size());
  for (const NcclCall& call : launch.calls) {
    const auto [source_bytes, destination_bytes] = bytes_of(call, comm.rank, comm.num_ranks());
    uses.push_back({call.source, source_bytes, size_in_bytes(call.type), false});
    uses.push_back({call.destination, destination_bytes, size_in_bytes(call.type)});
  }
  EmulatedCuda::MakeBody make;
  const std::shared_ptr<Comm> owner = comm.shared_from_this();
  const NcclCall& first = launch.calls.front();
  const bool is_alone = comm.num_ranks() == 1 && !first.is_p2p();
  if (is_alone && first.source == first.destination) return NcclStatus::SUCCESS;
  if (is_alone) {
    make = [bytes = uses[0].size_bytes](Lock&, EmulatedStream&) {
      return
          [bytes](std::span<std::byte* const> views) { std::memmove(views[1], views[0], bytes); };
    };
  } else {
    make = [running = running_, owner, calls = launch.calls](Lock& held, EmulatedStream& queue) {
      auto kernel = std::make_shared<Kernel>(held, running, owner, calls);
      kernel->join(queue);
      return [kernel](std::span<std::byte* const> views) { kernel->run(views); };
    };
  }
  EmulatedCapture* const capture = stream->capture.get();
  const CudaStatus status =
      cuda_->submit(lock, *stream, "nccl", uses, true, std::move(make), launch.fault);
  if (status != CudaStatus::SUCCESS) {
    return fail(NcclStatus::UNHANDLED_CUDA_ERROR, cuda_->error_text(status));
  }
  if (capture != nullptr) {
    ++comm.num_graphs;
    capture->at_end.emplace_back([owner](Lock&) { --owner->num_graphs; });
  }
  return NcclStatus::SUCCESS;
}

NcclStatus EmulatedNccl::all_reduce(const void* source, void* destination, std::size_t count,
                                    NcclDataType type, NcclRedOp op, NcclComm comm,
                                    CudaStream stream) {
  return call("nccl.all_reduce", {Kind::ALL_REDUCE, source, destination, count, type, op, 0}, comm,
              stream);
}

NcclStatus EmulatedNccl::reduce(const void* source, void* destination, std::size_t count,
                                NcclDataType type, NcclRedOp op, int root, NcclComm comm,
                                CudaStream stream) {
  return call("nccl.reduce", {Kind::REDUCE, source, destination, count, type, op, root}, comm,
              stream);
}

NcclStatus EmulatedNccl::broadcast(const void* source, void* destination, std::size_t count,
                                   NcclDataType type, int root, NcclComm comm, CudaStream stream) {
  return call("nccl.broadcast",
              {Kind::BROADCAST, source, destination, count, type, NcclRedOp::SUM, root}, comm,
              stream);
}

NcclStatus EmulatedNccl::all_gather(const void* source, void* destination,
                                    std::size_t count_per_rank, NcclDataType type, NcclComm comm,
                                    CudaStream stream) {
  return call("nccl.all_gather",
              {Kind::ALL_GATHER, source, destination, count_per_rank, type, NcclRedOp::SUM, 0},
              comm, stream);
}

NcclStatus EmulatedNccl::reduce_scatter(const void* source, void* destination,
                                        std::size_t count_per_rank, NcclDataType type, NcclRedOp op,
                                        NcclComm comm, CudaStream stream) {
  return call("nccl.reduce_scatter",
              {Kind::REDUCE_SCATTER, source, destination, count_per_rank, type, op, 0}, comm,
              stream);
}

NcclStatus EmulatedNccl::send(const void* source, std::size_t count, NcclDataType type, int peer,
                              NcclComm comm, CudaStream stream) {
  return call("nccl.send", {Kind::SEND, source, nullptr, count, type, NcclRedOp::SUM, peer}, comm,
              stream);
}

NcclStatus EmulatedNccl::receive(void* destination, std::size_t count, NcclDataType type, int peer,
                                 NcclComm comm, CudaStream stream) {
  return call("nccl.receive",
              {Kind::RECEIVE, nullptr, destination, count, type, NcclRedOp::SUM, peer}, comm,
              stream);
}

}  // namespace crossdevice::testing
