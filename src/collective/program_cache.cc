// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/program_cache.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "crossdevice/collective/halving_doubling.h"
#include "crossdevice/collective/ring.h"
#include "crossdevice/collective/rooted.h"
#include "crossdevice/collective/shuffle.h"
#include "crossdevice/core/error.h"

namespace crossdevice::detail {
namespace {

using Kind = ProgramKey::Kind;

std::vector<std::size_t> everybody(std::size_t num_participants) {
  std::vector<std::size_t> all(num_participants);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

}  // namespace

Kind kind_of(AllReduceAlgorithm algorithm) {
  switch (algorithm) {
    case AllReduceAlgorithm::EXCHANGE:
    case AllReduceAlgorithm::SHUFFLE:
      return Kind::ALL_REDUCE_SHUFFLE;
    case AllReduceAlgorithm::DOUBLING:
    case AllReduceAlgorithm::HALVING_DOUBLING:
      return Kind::ALL_REDUCE_HALVING_DOUBLING;
    case AllReduceAlgorithm::RING:
      break;
  }
  return Kind::ALL_REDUCE_RING;
}

bool is_short_cut(AllReduceAlgorithm algorithm) {
  switch (algorithm) {
    case AllReduceAlgorithm::EXCHANGE:
    case AllReduceAlgorithm::DOUBLING:
      return true;
    case AllReduceAlgorithm::SHUFFLE:
    case AllReduceAlgorithm::HALVING_DOUBLING:
    case AllReduceAlgorithm::RING:
      break;
  }
  return false;
}

const ReductionAlgorithm& algorithm_of(Kind kind) {
  switch (kind) {
    case Kind::ALL_REDUCE_RING:
      return kRingReduction;
    case Kind::ALL_REDUCE_HALVING_DOUBLING:
      return kHalvingDoublingReduction;
    case Kind::ALL_REDUCE_SHUFFLE:
      return kShuffleReduction;
    case Kind::REDUCE_SCATTER_RING:
    case Kind::REDUCE_SCATTER_DIRECT:
    case Kind::ALL_GATHER_RING:
    case Kind::ALL_GATHER_DIRECT:
    case Kind::BROADCAST_CHAIN:
    case Kind::BROADCAST_TREE:
    case Kind::REDUCE_CHAIN:
    case Kind::REDUCE_TREE:
    case Kind::REDUCE_DIRECT:
    case Kind::GATHER_DIRECT:
      break;
  }
  throw InternalError("no kind of all-reduce");
}

Kind all_gather_kind(std::size_t size_bytes) {
  return size_bytes < kRingBytes ? Kind::ALL_GATHER_DIRECT : Kind::ALL_GATHER_RING;
}

bool is_ring(Kind kind) {
  switch (kind) {
    case Kind::ALL_REDUCE_RING:
    case Kind::REDUCE_SCATTER_RING:
    case Kind::ALL_GATHER_RING:
    case Kind::BROADCAST_CHAIN:
    case Kind::REDUCE_CHAIN:
      return true;
    case Kind::ALL_REDUCE_HALVING_DOUBLING:
    case Kind::ALL_REDUCE_SHUFFLE:
    case Kind::REDUCE_SCATTER_DIRECT:
    case Kind::ALL_GATHER_DIRECT:
    case Kind::BROADCAST_TREE:
    case Kind::REDUCE_TREE:
    case Kind::REDUCE_DIRECT:
    case Kind::GATHER_DIRECT:
      break;
  }
  return false;
}

std::size_t num_stages(const ProgramKey& key, std::size_t num_participants, std::size_t num_parts) {
  constexpr std::size_t kMostStages = 16;  // more only cost messages
  constexpr std::size_t kSmallestPartBytes = ProgramCache::kPieceBytes / 4;
  constexpr std::size_t kMostSteps = std::size_t{1} << 17;
  const std::size_t n = num_participants;
  if (n <= 2) return 1;  // nobody waits for one while another one could send
  const std::size_t part = std::max<std::size_t>(1, kSmallestPartBytes / key.element_size);
  const std::size_t affordable = std::clamp<std::size_t>(kMostSteps / (n * n), 1, kMostStages);
  return std::clamp<std::size_t>(key.num_elements / (num_parts * part), 1, affordable);
}

Schedule make_schedule(const ProgramKey& key, std::size_t num_participants) {
  const std::size_t n = num_participants;
  const std::vector<Interval> parts = padded_split({.begin = 0, .count = key.num_elements}, n);
  switch (key.kind) {
    case Kind::ALL_REDUCE_RING: {
      const std::vector<std::size_t> all = everybody(n);
      return ring_schedule(key.num_elements, std::span(&all, 1));
    }
    case Kind::ALL_REDUCE_HALVING_DOUBLING:
      return halving_doubling_schedule(n, key.num_elements,
                                       num_stages(key, n, halving_doubling_core(n)));
    case Kind::ALL_REDUCE_SHUFFLE:
      return shuffle_schedule(n, key.num_elements, everybody(n), num_stages(key, n, n));
    case Kind::REDUCE_SCATTER_RING:
      return ring_reduce_scatter_schedule(parts);
    case Kind::REDUCE_SCATTER_DIRECT:
      return direct_reduce_scatter_schedule(parts);
    case Kind::ALL_GATHER_RING:
      return ring_all_gather_schedule(parts);
    case Kind::ALL_GATHER_DIRECT:
      return direct_all_gather_schedule(parts);
    case Kind::BROADCAST_CHAIN:
      return chain_broadcast_schedule(n, key.num_elements, key.root);
    case Kind::BROADCAST_TREE:
      return tree_broadcast_schedule(n, key.num_elements, key.root);
    case Kind::REDUCE_CHAIN:
      return chain_reduce_schedule(n, key.num_elements, key.root);
    case Kind::REDUCE_TREE:
      return tree_reduce_schedule(n, key.num_elements, key.root);
    case Kind::REDUCE_DIRECT:
      return direct_reduce_schedule(n, key.num_elements, key.root);
    case Kind::GATHER_DIRECT:
      return direct_gather_schedule(parts, key.root);
  }
  throw InternalError("an unknown kind of schedule");
}

std::shared_ptr<const ScheduleProgram> ProgramCache::find(const ProgramKey& key) {
  if (const auto known = entries_.find(key); known != entries_.end()) {
    uses_.splice(uses_.begin(), uses_, known->second.use);
    return known->second.program;
  }
  const std::size_t piece = std::max<std::size_t>(1, kPieceBytes / key.element_size);
  ScheduleProgram compiled =
      compile_schedule(make_schedule(key, num_participants_), participant_, piece);
  if (!ranks_.empty()) {
    const auto rank_of = [this](std::size_t peer) {
      return static_cast<std::size_t>(ranks_[peer]);
    };
    for (ProgramTask& task : compiled.tasks) task.peer = rank_of(task.peer);
    for (std::size_t& peer : compiled.peers) peer = rank_of(peer);
  }
  auto program = std::make_shared<const ScheduleProgram>(std::move(compiled));
  if (entries_.size() == kMaxPrograms) {
    entries_.erase(uses_.back());
    uses_.pop_back();
  }
  uses_.push_front(key);
  entries_.emplace(key, Entry{program, uses_.begin()});
  return program;
}

}  // namespace crossdevice::detail
