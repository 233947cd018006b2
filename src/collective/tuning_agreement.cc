// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/tuning_agreement.h"

#include <algorithm>
#include <new>
#include <optional>

#include <fmt/format.h>

#include "crossdevice/collective/tuning_file.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/format_bytes.h"

#include "collective/detail/known_links.h"

namespace crossdevice::detail {

AllReduceTuning receive_tuning(Cluster& cluster, const Deadline& deadline) {
  constexpr char kTuning = 'T';
  constexpr char kTrouble = 'E';
  constexpr char kNoMemory = 'M';
  constexpr char kExhausted = 'R';
  std::string mine;
  if (cluster.rank() == 0) {
    try {
      AllReduceTuning tuning = read_tuning_file();
      if (!tuning.links.has_value()) tuning.links = KnownLinks::of_process().find(cluster.id());
      mine = kTuning + to_string(tuning);
    } catch (const std::bad_alloc&) {
      mine = kNoMemory;
    } catch (const ResourceExhaustedError& error) {
      mine = kExhausted + std::string(error.what());
    } catch (const std::exception& error) {
      mine = kTrouble + std::string(error.what());
    }
  }
  const std::string theirs = cluster.broadcast_bytes(mine, 0, deadline);
  if (!theirs.empty() && (theirs[0] == kNoMemory || theirs[0] == kExhausted)) {
    const RankInfo chief = cluster.worker(0);
    throw ResourceExhaustedError(theirs[0] == kNoMemory
                                     ? "there is no memory left in " + to_string(chief)
                                     : to_string(chief) + ": " + theirs.substr(1),
                                 {.operation = {}, .culprits = {chief}});
  }
  if (theirs.empty() || theirs[0] != kTuning) {
    throw ValueError("rank 0: " + theirs.substr(std::min<std::size_t>(1, theirs.size())));
  }
  return parse_all_reduce_tuning(theirs.substr(1));
}

std::string explain(std::span<const AllReduceCandidate> candidates, const AllReduceTuning& tuning) {
  if (!tuning.links.has_value()) {
    return fmt::format("{}, pinned as all sizes are; the links are not measured",
                       to_string(candidates[0].algorithm));
  }
  std::string others;
  for (const AllReduceCandidate& each : candidates.subspan(1)) {
    others += fmt::format("{}{} {:.1f}", others.empty() ? "" : ", ", to_string(each.algorithm),
                          each.predicted_seconds * 1e6);
  }
  return fmt::format("{}, {:.1f} us expected ({})", to_string(candidates[0].algorithm),
                     candidates[0].predicted_seconds * 1e6, others);
}

std::string describe(const AllReduceTuning& tuning, std::size_t num_ranks, bool is_mesh) {
  std::string text = fmt::format("all-reduce among {} workers that exchange messages: ", num_ranks);
  if (tuning.links.has_value()) {
    const LinkModel& links = *tuning.links;
    text += fmt::format(
        "{:.1f} us a round and {:.1f} us each message more, {:.1f} MB/s in a ring, {:.1f} MB/s in "
        "a mesh{};",
        links.latency_seconds * 1e6, links.message_seconds * 1e6, links.ring_bytes_per_second / 1e6,
        links.mesh_bytes_per_second / 1e6, tuning.pins.empty() ? "" : ", choices pinned");
  } else {
    text += "links not measured, all choices pinned;";
  }
  std::optional<AllReduceAlgorithm> last;
  for (std::size_t size = 8; size <= std::size_t{1} << 30; size *= 2) {
    const AllReduceAlgorithm choice = choose_all_reduce(num_ranks, size, is_mesh, tuning);
    if (choice != last) text += fmt::format(" {} from {}", to_string(choice), format_bytes(size));
    last = choice;
  }
  return text;
}

}  // namespace crossdevice::detail
