// SPDX-License-Identifier: Apache-2.0
/// Which algorithm an all-reduce over a transport takes, and why: a model of the links in this job, or what somebody has pinned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/core/export.h"

namespace crossdevice {

/// How n ranks reduce S bytes each.
enum class AllReduceAlgorithm : std::uint8_t {
  EXCHANGE,  ///< everybody sends everything to everybody: 1 round, (n - 1) S bytes
  DOUBLING,  ///< in pairs, pairs of pairs, ..., everything each time: log2 n rounds, log2 n S bytes, more off powers of two
  SHUFFLE,   ///< every rank reduces a part of all: 2 rounds, 2(n - 1)/n S bytes
  HALVING_DOUBLING,  ///< in pairs: 2 log2 n rounds, 2(n - 1)/n S bytes, more off powers of two
  RING,              ///< to the next neighbour alone: 2(n - 1) rounds, 2(n - 1)/n S bytes
};
/// "exchange", "doubling", "shuffle", "rechd", "ring".
[[nodiscard]] CROSSDEVICE_EXPORT std::string_view to_string(AllReduceAlgorithm algorithm);

/// What the links can do; the worst of all ranks. The defaults are a network of 10 Gbit/s.
struct LinkModel {
  double latency_seconds =
      30e-6;  ///< of a round in which everybody sends and receives a message without bytes
  double ring_bytes_per_second = 1.1e9;  ///< everybody to the next and from the one before, at once
  double mesh_bytes_per_second = 1.1e9;  ///< everybody to and from all others, at once
  double message_seconds =
      0;  ///< of each message more that a rank sends and receives in the same round
  friend bool operator==(const LinkModel&, const LinkModel&) = default;
};

/// The time that the model expects.
[[nodiscard]] CROSSDEVICE_EXPORT double predict_all_reduce_seconds(AllReduceAlgorithm algorithm,
                                                                   std::size_t num_ranks,
                                                                   std::size_t size_bytes,
                                                                   const LinkModel& links);

/// How choices are made in a job; equal on all ranks.
struct CROSSDEVICE_EXPORT AllReduceTuning {
  /// Up to how many bytes an algorithm is taken; the last one has no limit.
  struct Pin {
    std::uint64_t up_to_bytes = 0;
    AllReduceAlgorithm algorithm = AllReduceAlgorithm::RING;
    friend bool operator==(const Pin&, const Pin&) = default;
  };
  /// Nothing: to be measured, where not all sizes are pinned.
  std::optional<LinkModel> links{};
  /// Ascending; empty: what the model says is fastest.
  std::vector<Pin> pins{};
  friend bool operator==(const AllReduceTuning&, const AllReduceTuning&) = default;
};

/// Reads a tuning file:
///   {"links": {"latency_seconds": 5e-5, "message_seconds": 4e-6, "ring_bytes_per_second": 1.2e8, "mesh_bytes_per_second": 1.1e8},
///    "all_reduce": [{"up_to_bytes": 2048, "algorithm": "exchange"}, {"algorithm": "ring"}]}
/// Both may be missing, and message_seconds, which are 0 then.
///
/// Errors   ValueError: no JSON of this form, numbers that are not positive, limits that do not increase, a last one with a limit, an unknown algorithm;
///          says which.
[[nodiscard]] CROSSDEVICE_EXPORT AllReduceTuning parse_all_reduce_tuning(std::string_view json);
/// The text that parse_all_reduce_tuning() reads again.
[[nodiscard]] CROSSDEVICE_EXPORT std::string to_string(const AllReduceTuning& tuning);

/// Whether the links are no matter: for each size something is pinned that is possible. A batch that cannot be doubled where DOUBLING is pinned, being of
/// float16 or deterministic, say, takes its schedule's like, HALVING_DOUBLING or SHUFFLE, whatever the links are.
[[nodiscard]] CROSSDEVICE_EXPORT bool pins_every_size(const AllReduceTuning& tuning, bool is_mesh);

/// One candidate and what is said for it.
struct AllReduceCandidate {
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::RING;
  double predicted_seconds = 0;
};
/// What can be taken for so many bytes, the choice first and then the fastest. Without a mesh, in which everybody is connected to everybody, neither
/// EXCHANGE nor SHUFFLE are; EXCHANGE and DOUBLING are for up to kMaxExchangeBytes. Where the tuning has no links, those of a LinkModel by default count.
[[nodiscard]] CROSSDEVICE_EXPORT std::vector<AllReduceCandidate> rank_all_reduce_algorithms(
    std::size_t num_ranks, std::size_t size_bytes, bool is_mesh, const AllReduceTuning& tuning);
/// The first of them.
[[nodiscard]] CROSSDEVICE_EXPORT AllReduceAlgorithm choose_all_reduce(
    std::size_t num_ranks, std::size_t size_bytes, bool is_mesh, const AllReduceTuning& tuning);

inline constexpr std::size_t kMaxExchangeBytes = std::size_t{16} << 10;

}  // namespace crossdevice
