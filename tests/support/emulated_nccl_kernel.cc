// SPDX-License-Identifier: Apache-2.0
#include "support/emulated_nccl_kernel.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "support/emulated_nccl_arithmetic.h"

namespace crossdevice::testing {
namespace {

using Kind = NcclCall::Kind;
using Meeting = EmulatedNccl::Clique::Meeting;
using Arrival = EmulatedNccl::Clique::Arrival;

const char* name_of(Kind kind) {
  static constexpr const char* kNames[] = {"all_reduce",     "reduce", "broadcast", "all_gather",
                                           "reduce_scatter", "send",   "receive"};
  return kNames[static_cast<std::size_t>(kind)];
}

bool reduces(Kind kind) {
  return kind == Kind::ALL_REDUCE || kind == Kind::REDUCE || kind == Kind::REDUCE_SCATTER;
}

bool has_root(Kind kind) { return kind == Kind::REDUCE || kind == Kind::BROADCAST; }

std::string text_of(const NcclCall& call) {
  std::string text = fmt::format("{} of {} {}", name_of(call.kind), call.count,
                                 crossdevice::testing::name_of(call.type));
  if (reduces(call.kind)) text += fmt::format(" by {}", crossdevice::testing::name_of(call.op));
  if (has_root(call.kind)) text += fmt::format(", root {}", call.root_or_peer);
  return text;
}

// What the wire does not tell apart corrupts, the rest hangs.
bool hangs_together(const NcclCall& a, const NcclCall& b) {
  return a.kind != b.kind || a.count * size_in_bytes(a.type) != b.count * size_in_bytes(b.type) ||
         (has_root(a.kind) && a.root_or_peer != b.root_or_peer);
}

bool differ(const NcclCall& a, const NcclCall& b) {
  return hangs_together(a, b) || a.count != b.count ||
         (reduces(a.kind) && (a.type != b.type || a.op != b.op));
}

void move_bytes(std::byte* destination, const std::byte* source, std::size_t size_bytes) {
  if (size_bytes > 0 && destination != source) std::memmove(destination, source, size_bytes);
}

void reduce_all(const std::vector<Arrival>& ranks) {
  const NcclCall& call = ranks.front().call;
  const bool is_scattered = call.kind == Kind::REDUCE_SCATTER;
  const std::size_t bytes = call.count * size_in_bytes(call.type);
  const std::size_t parts = is_scattered ? ranks.size() : 1;
  std::vector<const std::byte*> inputs;
  inputs.reserve(ranks.size());
  for (const Arrival& rank : ranks) inputs.push_back(rank.source);
  std::vector<std::byte> result(parts * bytes);  // of its own: destinations may be sources
  reduce_as_nccl(call.type, call.op, inputs, result.data(), parts * call.count);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (call.kind == Kind::REDUCE && static_cast<int>(rank) != call.root_or_peer) continue;
    move_bytes(ranks[rank].destination, result.data() + (is_scattered ? rank * bytes : 0), bytes);
  }
}

void compute(const std::vector<Arrival>& ranks) {
  const NcclCall& call = ranks.front().call;
  const std::size_t bytes = call.count * size_in_bytes(call.type);
  switch (call.kind) {
    case Kind::ALL_REDUCE:
    case Kind::REDUCE:
    case Kind::REDUCE_SCATTER:
      reduce_all(ranks);
      return;
    case Kind::BROADCAST:
      for (const Arrival& rank : ranks) {
        move_bytes(rank.destination, ranks[static_cast<std::size_t>(call.root_or_peer)].source,
                   bytes);
      }
      return;
    case Kind::ALL_GATHER:
      for (const Arrival& to : ranks) {
        for (std::size_t from = 0; from < ranks.size(); ++from) {
          move_bytes(to.destination + from * bytes, ranks[from].source, bytes);
        }
      }
      return;
    case Kind::SEND:
    case Kind::RECEIVE:
      return;
  }
}

// "" or who called what.
std::string find_mismatch(const std::vector<Arrival>& ranks, bool* hangs) {
  *hangs = false;
  std::string text;
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    if (!differ(ranks[0].call, ranks[rank].call)) continue;
    *hangs = *hangs || hangs_together(ranks[0].call, ranks[rank].call);
    if (text.empty()) text = fmt::format("rank 0: {}", text_of(ranks[0].call));
    text += fmt::format("; rank {}: {}", rank, text_of(ranks[rank].call));
  }
  return text;
}

}  // namespace

std::pair<std::size_t, std::size_t> bytes_of(const NcclCall& call, int rank,
                                             std::size_t num_ranks) {
  const std::size_t bytes = call.count * size_in_bytes(call.type);
  const bool is_root = rank == call.root_or_peer;
  switch (call.kind) {
    case Kind::ALL_REDUCE:
      return {bytes, bytes};
    case Kind::REDUCE:
      return {bytes, is_root ? bytes : 0};
    case Kind::BROADCAST:
      return {is_root ? bytes : 0, bytes};
    case Kind::ALL_GATHER:
      return {bytes, num_ranks * bytes};
    case Kind::REDUCE_SCATTER:
      return {num_ranks * bytes, bytes};
    case Kind::SEND:
      return {bytes, 0};
    case Kind::RECEIVE:
      return {0, bytes};
  }
  return {0, 0};
}

EmulatedNccl::Kernel::Kernel(Lock& lock, std::shared_ptr<Running> all, std::shared_ptr<Comm> owner,
                             std::vector<NcclCall> what)
    : running_(std::move(all)), comm_(std::move(owner)), calls_(std::move(what)) {
  if (!calls_.front().is_p2p()) number_ = comm_->num_launched++;
  releases_ = running_->machine.num_releases(lock);
  running_->of_device[comm_->device].push_back(this);
  ++comm_->num_kernels;
}

void EmulatedNccl::Kernel::join(EmulatedStream& queue) {
  Clique& clique = *comm_->clique;
  const auto join_one = [&queue](auto& joints, std::uint64_t number, std::size_t num_members) {
    std::shared_ptr<JointClock>& place = joints[number];
    if (place == nullptr) {
      place = std::make_shared<JointClock>();
      place->num_missing = num_members;
    }
    place->clock.merge(queue.clock);
    queue.joints.push_back(place);
    if (--place->num_missing == 0) joints.erase(number);
  };
  if (!calls_.front().is_p2p()) {
    join_one(clique.joints, number_, clique.num_ranks);
    return;
  }
  for (const NcclCall& call : calls_) {
    const bool sends = call.kind == Kind::SEND;
    Clique::Lane& lane = clique.lanes[sends ? std::pair(comm_->rank, call.root_or_peer)
                                            : std::pair(call.root_or_peer, comm_->rank)];
    join_one(lane.joints, sends ? lane.num_sends_launched++ : lane.num_receives_launched++, 2);
  }
}

EmulatedNccl::Kernel::~Kernel() {
  const auto lock = running_->machine.lock();
  end();
}

void EmulatedNccl::Kernel::end() {
  if (has_ended_) return;
  has_ended_ = true;
  std::erase(running_->of_device[comm_->device], this);
  --comm_->num_kernels;
  running_->machine.notify();
}

bool EmulatedNccl::Kernel::leaves(Lock& lock) const {
  return comm_->is_aborted || comm_->is_revoked ||
         running_->machine.num_releases(lock) != releases_;
}

bool EmulatedNccl::Kernel::is_its_turn() const {
  for (const Kernel* kernel : running_->of_device[comm_->device]) {
    if (kernel == this) return true;
    if (running_->is_exclusive || kernel->comm_ == comm_) return false;
  }
  return true;
}

void EmulatedNccl::Kernel::run(std::span<std::byte* const> views) {
  EmulatedMachine& machine = running_->machine;
  auto lock = machine.lock();
  const bool is_ready = machine.await(lock, [&] { return leaves(lock) || is_its_turn(); });
  if (is_ready && !leaves(lock)) {
    if (calls_.front().is_p2p()) {
      exchange(lock, views);
    } else {
      meet(lock, views);
    }
  }
  end();
}

// The rank that comes last computes, for all; nobody leaves meanwhile, since its memory is in use.
void EmulatedNccl::Kernel::meet(Lock& lock, std::span<std::byte* const> views) {
  EmulatedMachine& machine = running_->machine;
  Clique& clique = *comm_->clique;
  std::shared_ptr<Meeting>& place = clique.meetings[number_];
  if (place == nullptr) {
    place = std::make_shared<Meeting>();
    place->arrivals.resize(clique.num_ranks);
  }
  const std::shared_ptr<Meeting> meeting = place;
  meeting->arrivals[static_cast<std::size_t>(comm_->rank)] = {calls_.front(), views[0], views[1],
                                                              true};
  if (++meeting->num_arrived == clique.num_ranks && !meeting->is_broken) {
    clique.meetings.erase(number_);
    bool hangs = false;
    std::string mismatch = find_mismatch(meeting->arrivals, &hangs);
    if (!mismatch.empty()) running_->mismatches.push_back(std::move(mismatch));
    if (!hangs) {
      meeting->is_computing = true;
      lock.unlock();
      compute(meeting->arrivals);
      lock.lock();
      meeting->is_computing = false;
      meeting->is_done = true;
    }
    machine.notify();
  }
  (void)machine.await(lock,
                      [&] { return meeting->is_done || (leaves(lock) && !meeting->is_computing); });
  if (!meeting->is_done) meeting->is_broken = true;
}

void EmulatedNccl::Kernel::exchange(Lock& lock, std::span<std::byte* const> views) {
  EmulatedMachine& machine = running_->machine;
  std::vector<std::shared_ptr<Clique::Post>> posts;
  posts.reserve(calls_.size());
  for (std::size_t index = 0; index < calls_.size(); ++index) {
    const NcclCall& call = calls_[index];
    const bool sends = call.kind == Kind::SEND;
    Clique::Lane& lane = comm_->clique->lanes[sends ? std::pair(comm_->rank, call.root_or_peer)
                                                    : std::pair(call.root_or_peer, comm_->rank)];
    auto& own = sends ? lane.sends : lane.receives;
    const auto& others = sends ? lane.receives : lane.sends;
    auto post = std::make_shared<Clique::Post>();
    post->memory = views[2 * index + (sends ? 0 : 1)];
    post->size_bytes = call.count * size_in_bytes(call.type);
    own.push_back(post);
    posts.push_back(post);
    if (others.size() < own.size()) continue;
    Clique::Post& other = *others[own.size() - 1];
    if (other.has_left) continue;
    if (other.size_bytes != post->size_bytes) {
      running_->mismatches.push_back(fmt::format("rank {}: {} with rank {} of {} bytes, there {}",
                                                 comm_->rank, name_of(call.kind), call.root_or_peer,
                                                 post->size_bytes, other.size_bytes));
      continue;
    }
    move_bytes(sends ? other.memory : post->memory, sends ? post->memory : other.memory,
               post->size_bytes);
    post->is_done = true;
    other.is_done = true;
    machine.notify();
  }
  const auto is_done = [&] {
    return std::all_of(posts.begin(), posts.end(), [](const auto& post) { return post->is_done; });
  };
  (void)machine.await(lock, [&] { return is_done() || leaves(lock); });
  for (const auto& post : posts) post->has_left = true;
}

}  // namespace crossdevice::testing
