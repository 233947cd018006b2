// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/all_reduce_choice.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

constexpr std::array kAlgorithms = {AllReduceAlgorithm::EXCHANGE, AllReduceAlgorithm::DOUBLING,
                                    AllReduceAlgorithm::SHUFFLE,
                                    AllReduceAlgorithm::HALVING_DOUBLING, AllReduceAlgorithm::RING};
constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

AllReduceAlgorithm algorithm_of(const std::string& name) {
  for (const AllReduceAlgorithm algorithm : kAlgorithms) {
    if (name == to_string(algorithm)) return algorithm;
  }
  throw ValueError(fmt::format(
      "tuning: algorithm must be exchange, doubling, shuffle, rechd or ring, not \"{}\"", name));
}

/// A name that is misspelt says nothing, and is meant to.
void require_object_of(const nlohmann::json& value, const char* what,
                       std::initializer_list<std::string_view> known) {
  if (!value.is_object()) throw ValueError(fmt::format("tuning: {} must be a JSON object", what));
  for (const auto& [name, ignored] : value.items()) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    throw ValueError(
        fmt::format("tuning: {} has no \"{}\", but {}", what, name, fmt::join(known, ", ")));
  }
}

double positive(const nlohmann::json& links, const char* name) {
  const double value = links.at(name).get<double>();
  if (std::isfinite(value) && value > 0) return value;
  throw ValueError(fmt::format("tuning: {} must be positive, not {}", name, value));
}

double positive_or_nothing(const nlohmann::json& links, const char* name) {
  const double value = links.value(name, 0.0);
  if (std::isfinite(value) && value >= 0) return value;
  throw ValueError(fmt::format("tuning: {} must not be negative, as {} is", name, value));
}

std::vector<AllReduceTuning::Pin> pins_of(const nlohmann::json& entries) {
  std::vector<AllReduceTuning::Pin> pins;
  pins.reserve(entries.size());
  for (const nlohmann::json& entry : entries) {
    require_object_of(entry, "an entry of all_reduce", {"algorithm", "up_to_bytes"});
    AllReduceTuning::Pin pin{.up_to_bytes = kNoLimit,
                             .algorithm = algorithm_of(entry.at("algorithm").get<std::string>())};
    if (const auto limit = entry.find("up_to_bytes"); limit != entry.end()) {
      if (!limit->is_number_unsigned())
        throw ValueError("tuning: up_to_bytes is no number of bytes");
      pin.up_to_bytes = limit->get<std::uint64_t>();
    }
    if (!pins.empty() && pin.up_to_bytes <= pins.back().up_to_bytes) {
      throw ValueError("tuning: up_to_bytes must increase, and only the last one may be missing");
    }
    pins.push_back(pin);
  }
  if (!pins.empty() && pins.back().up_to_bytes != kNoLimit) {
    throw ValueError("tuning: the last algorithm must have no up_to_bytes");
  }
  return pins;
}

/// The largest power of two that is not more than that, and what else there is.
struct Core {
  explicit Core(std::size_t num_ranks)
      : size(static_cast<double>(std::bit_floor(num_ranks))),
        log2_size(std::log2(size)),
        has_extras(!std::has_single_bit(num_ranks)) {}
  double size;
  double log2_size;
  bool has_extras;
};

/// In rounds of messages each way: as a transport with one latency pays for it.
double rounds_of(AllReduceAlgorithm algorithm, std::size_t num_ranks) {
  const auto n = static_cast<double>(num_ranks);
  const Core core(num_ranks);
  switch (algorithm) {
    case AllReduceAlgorithm::EXCHANGE:
      return 1;
    case AllReduceAlgorithm::DOUBLING:
      return core.log2_size + (core.has_extras ? 2 : 0);
    case AllReduceAlgorithm::SHUFFLE:
      return 2;
    case AllReduceAlgorithm::HALVING_DOUBLING:
      return 2 * core.log2_size + (core.has_extras ? 2 : 0);
    case AllReduceAlgorithm::RING:
      return 2 * (n - 1);
  }
  return 0;
}

/// Messages that the busiest rank sends in a round beside the first.
double more_messages_of(AllReduceAlgorithm algorithm, std::size_t num_ranks) {
  switch (algorithm) {
    case AllReduceAlgorithm::EXCHANGE:
    case AllReduceAlgorithm::SHUFFLE:
      return static_cast<double>(num_ranks) - 2;
    case AllReduceAlgorithm::DOUBLING:
    case AllReduceAlgorithm::HALVING_DOUBLING:
    case AllReduceAlgorithm::RING:
      return 0;
  }
  return 0;
}

/// Bytes that leave the busiest rank, in sizes of the whole.
double sizes_sent(AllReduceAlgorithm algorithm, std::size_t num_ranks) {
  const auto n = static_cast<double>(num_ranks);
  const Core core(num_ranks);
  switch (algorithm) {
    case AllReduceAlgorithm::EXCHANGE:
      return n - 1;
    case AllReduceAlgorithm::DOUBLING:
      return core.log2_size + (core.has_extras ? 1 : 0);
    case AllReduceAlgorithm::SHUFFLE:
    case AllReduceAlgorithm::RING:
      return 2 * (n - 1) / n;
    case AllReduceAlgorithm::HALVING_DOUBLING:
      return 2 * (core.size - 1) / core.size + (core.has_extras ? 1 : 0);
  }
  return 0;
}

double bandwidth_of(AllReduceAlgorithm algorithm, const LinkModel& links) {
  switch (algorithm) {
    case AllReduceAlgorithm::RING:
      return links.ring_bytes_per_second;
    case AllReduceAlgorithm::EXCHANGE:
    case AllReduceAlgorithm::SHUFFLE:
    case AllReduceAlgorithm::DOUBLING:  // pairs at a distance cross as many links as a mesh does
    case AllReduceAlgorithm::HALVING_DOUBLING:
      break;
  }
  return links.mesh_bytes_per_second;
}

/// How much longer than its bytes take: who waits for several connections, or for a partner, between rounds leaves the link idle where in a ring one piece follows
/// the other. Four workers over links of 200 Mbit/s took, from 1 to 16 MiB, 1.05 to 1.16 times as long with a shuffle as in a ring, and 1.05 to 1.16 times by
/// halving and doubling.
double idleness_of(AllReduceAlgorithm algorithm) {
  switch (algorithm) {
    case AllReduceAlgorithm::SHUFFLE:
      return 1.05;
    case AllReduceAlgorithm::HALVING_DOUBLING:
      return 1.1;
    case AllReduceAlgorithm::EXCHANGE:
    case AllReduceAlgorithm::DOUBLING:
    case AllReduceAlgorithm::RING:
      return 1;
  }
  return 1;
}

constexpr bool is_possible(AllReduceAlgorithm algorithm, std::size_t size_bytes, bool is_mesh) {
  switch (algorithm) {
    case AllReduceAlgorithm::EXCHANGE:
      return is_mesh && size_bytes <= kMaxExchangeBytes;
    case AllReduceAlgorithm::DOUBLING:
      return size_bytes <= kMaxExchangeBytes;
    case AllReduceAlgorithm::SHUFFLE:
      return is_mesh;
    case AllReduceAlgorithm::HALVING_DOUBLING:
    case AllReduceAlgorithm::RING:
      return true;
  }
  return false;
}
// Every algorithm can reduce no bytes in a mesh; what is no algorithm cannot.
static_assert(!is_possible(static_cast<AllReduceAlgorithm>(kAlgorithms.size()), 0, true),
              "kAlgorithms lacks an algorithm");

}  // namespace

std::string_view to_string(AllReduceAlgorithm algorithm) {
  switch (algorithm) {
    case AllReduceAlgorithm::EXCHANGE:
      return "exchange";
    case AllReduceAlgorithm::DOUBLING:
      return "doubling";
    case AllReduceAlgorithm::SHUFFLE:
      return "shuffle";
    case AllReduceAlgorithm::HALVING_DOUBLING:
      return "rechd";
    case AllReduceAlgorithm::RING:
      return "ring";
  }
  return "unknown";
}

double predict_all_reduce_seconds(AllReduceAlgorithm algorithm, std::size_t num_ranks,
                                  std::size_t size_bytes, const LinkModel& links) {
  if (num_ranks < 2) return 0;
  const double bandwidth = bandwidth_of(algorithm, links);
  const double rounds = rounds_of(algorithm, num_ranks);
  return rounds * (links.latency_seconds +
                   more_messages_of(algorithm, num_ranks) * links.message_seconds) +
         idleness_of(algorithm) * sizes_sent(algorithm, num_ranks) *
             static_cast<double>(size_bytes) / bandwidth;
}

AllReduceTuning parse_all_reduce_tuning(std::string_view json) {
  try {
    const nlohmann::json root = nlohmann::json::parse(json);
    require_object_of(root, "the file", {"links", "all_reduce"});
    AllReduceTuning tuning;
    if (const auto links = root.find("links"); links != root.end()) {
      require_object_of(
          *links, "links",
          {"latency_seconds", "ring_bytes_per_second", "mesh_bytes_per_second", "message_seconds"});
      tuning.links = LinkModel{.latency_seconds = positive(*links, "latency_seconds"),
                               .ring_bytes_per_second = positive(*links, "ring_bytes_per_second"),
                               .mesh_bytes_per_second = positive(*links, "mesh_bytes_per_second"),
                               .message_seconds = positive_or_nothing(*links, "message_seconds")};
    }
    if (const auto pins = root.find("all_reduce"); pins != root.end()) {
      if (!pins->is_array()) throw ValueError("tuning: all_reduce must be a list");
      tuning.pins = pins_of(*pins);
    }
    return tuning;
  } catch (const nlohmann::json::exception& error) {
    throw ValueError(std::string("tuning: ") + error.what());
  }
}

std::string to_string(const AllReduceTuning& tuning) {
  nlohmann::json root = nlohmann::json::object();
  if (tuning.links.has_value()) {
    root["links"] = {{"latency_seconds", tuning.links->latency_seconds},
                     {"ring_bytes_per_second", tuning.links->ring_bytes_per_second},
                     {"mesh_bytes_per_second", tuning.links->mesh_bytes_per_second},
                     {"message_seconds", tuning.links->message_seconds}};
  }
  for (const AllReduceTuning::Pin& pin : tuning.pins) {
    nlohmann::json entry = {{"algorithm", std::string(to_string(pin.algorithm))}};
    if (pin.up_to_bytes != kNoLimit) entry["up_to_bytes"] = pin.up_to_bytes;
    root["all_reduce"].push_back(std::move(entry));
  }
  return root.dump();
}

bool pins_every_size(const AllReduceTuning& tuning, bool is_mesh) {
  const auto is_taken = [is_mesh](const AllReduceTuning::Pin& pin) {
    return is_possible(pin.algorithm, pin.up_to_bytes, is_mesh);
  };
  return !tuning.pins.empty() && tuning.pins.back().up_to_bytes == kNoLimit &&
         std::all_of(tuning.pins.begin(), tuning.pins.end(), is_taken);
}

std::vector<AllReduceCandidate> rank_all_reduce_algorithms(std::size_t num_ranks,
                                                           std::size_t size_bytes, bool is_mesh,
                                                           const AllReduceTuning& tuning) {
  const LinkModel links = tuning.links.value_or(LinkModel{});
  std::vector<AllReduceCandidate> candidates;
  for (const AllReduceAlgorithm algorithm : kAlgorithms) {
    if (!is_possible(algorithm, size_bytes, is_mesh)) continue;
    candidates.push_back(
        {.algorithm = algorithm,
         .predicted_seconds = predict_all_reduce_seconds(algorithm, num_ranks, size_bytes, links)});
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.predicted_seconds < b.predicted_seconds;
  });
  const AllReduceAlgorithm choice = choose_all_reduce(num_ranks, size_bytes, is_mesh, tuning);
  const auto chosen = std::find_if(candidates.begin(), candidates.end(),
                                   [&](const auto& each) { return each.algorithm == choice; });
  std::rotate(candidates.begin(), chosen, chosen + 1);
  return candidates;
}

AllReduceAlgorithm choose_all_reduce(std::size_t num_ranks, std::size_t size_bytes, bool is_mesh,
                                     const AllReduceTuning& tuning) {
  for (const AllReduceTuning::Pin& pin : tuning.pins) {
    if (size_bytes > pin.up_to_bytes) continue;
    if (is_possible(pin.algorithm, size_bytes, is_mesh)) return pin.algorithm;
    break;  // pinned, but not here: the model decides
  }
  const LinkModel links = tuning.links.value_or(LinkModel{});
  AllReduceAlgorithm best = AllReduceAlgorithm::RING;
  double best_seconds = std::numeric_limits<double>::infinity();
  for (const AllReduceAlgorithm algorithm : kAlgorithms) {
    if (!is_possible(algorithm, size_bytes, is_mesh)) continue;
    const double seconds = predict_all_reduce_seconds(algorithm, num_ranks, size_bytes, links);
    if (seconds < best_seconds) {
      best = algorithm;
      best_seconds = seconds;
    }
  }
  return best;
}

}  // namespace crossdevice
