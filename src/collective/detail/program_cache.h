// SPDX-License-Identifier: Apache-2.0
/// The programs that a rank has run, kept for the next time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "crossdevice/collective/all_reduce_choice.h"
#include "crossdevice/collective/reduction_span.h"
#include "crossdevice/collective/schedule_program.h"

namespace crossdevice::detail {

/// How something is done over a transport, and on which sizes it depends.
struct ProgramKey {
  enum class Kind : std::uint8_t {
    ALL_REDUCE_RING,
    ALL_REDUCE_HALVING_DOUBLING,
    ALL_REDUCE_SHUFFLE,
    REDUCE_SCATTER_RING,
    REDUCE_SCATTER_DIRECT,
    ALL_GATHER_RING,
    ALL_GATHER_DIRECT,
    BROADCAST_CHAIN,
    BROADCAST_TREE,
    REDUCE_CHAIN,
    REDUCE_TREE,
    REDUCE_DIRECT,
    GATHER_DIRECT,
  };
  Kind kind = Kind::ALL_REDUCE_RING;
  std::size_t num_elements = 0;  ///< of the whole row; what is cut into parts has equal ones
  std::size_t element_size = 1;
  std::size_t root = 0;
  friend bool operator<(const ProgramKey& a, const ProgramKey& b) {
    return std::tie(a.kind, a.num_elements, a.element_size, a.root) <
           std::tie(b.kind, b.num_elements, b.element_size, b.root);
  }
};

/// From here on gathers and scatters take a ring.
inline constexpr std::size_t kRingBytes = std::size_t{1} << 20;

/// How an algorithm is scheduled; EXCHANGE, which needs no schedule, as the next best where values do not fit it.
[[nodiscard]] ProgramKey::Kind kind_of(AllReduceAlgorithm algorithm);

/// Whether it is for what fits into one message, and needs no schedule.
[[nodiscard]] bool is_short_cut(AllReduceAlgorithm algorithm);

/// What a scheduled all-reduce is called, and counted as.
[[nodiscard]] const ReductionAlgorithm& algorithm_of(ProgramKey::Kind kind);

/// How so many bytes of all participants together are gathered: in one round up to 1 MiB, else in a ring.
[[nodiscard]] ProgramKey::Kind all_gather_kind(std::size_t size_bytes);

/// Whether everybody talks to its two neighbours alone.
[[nodiscard]] bool is_ring(ProgramKey::Kind kind);

/// Keeps the kMaxPrograms that were used last; a result lives as long as its holder wants.
class ProgramCache {
 public:
  static constexpr std::size_t kMaxPrograms = 4096;
  /// What moves on at once. Larger pieces cost latency at every hop, smaller ones work per message.
  static constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

  /// `ranks`: of the participants, where they are not all ranks of the transport; ascending.
  ProgramCache(std::size_t num_participants, std::size_t participant, std::vector<int> ranks = {})
      : num_participants_(num_participants), participant_(participant), ranks_(std::move(ranks)) {}

  /// Its peers are ranks.
  [[nodiscard]] std::shared_ptr<const ScheduleProgram> find(const ProgramKey& key);

 private:
  struct Entry {
    std::shared_ptr<const ScheduleProgram> program;
    std::list<ProgramKey>::iterator use;
  };
  std::size_t num_participants_;
  std::size_t participant_;
  std::vector<int> ranks_;
  std::map<ProgramKey, Entry> entries_;
  std::list<ProgramKey> uses_;  // the last one first
};

/// Into how many stages an all-reduce is cut, blocks of a shuffle or shards of halving and doubling, each in `num_parts` parts. They move on one behind the other,
/// so that who waits for one of them has another to send. In a single one half of the participants of halving and doubling have their first elements for the
/// next round with the first that they receive of this one, the others only after half of them; and connections that share a link get unequal parts of it. Four
/// workers over links of 200 Mbit/s took for 4 MiB 1.40 times what their bytes take by halving and doubling, 1.24 times with a shuffle; in sixteen stages 1.11
/// and 1.10. As many as leave parts of 64 KiB, and schedules of a bounded size.
[[nodiscard]] std::size_t num_stages(const ProgramKey& key, std::size_t num_participants,
                                     std::size_t num_parts);

/// n parts of a row, one behind the other, as equal as can be: padded_split.
[[nodiscard]] Schedule make_schedule(const ProgramKey& key, std::size_t num_participants);

}  // namespace crossdevice::detail
