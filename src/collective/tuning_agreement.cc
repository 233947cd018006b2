// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/tuning_agreement.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>

#include <fmt/format.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/format_bytes.h"

namespace crossdevice::detail {
namespace {

constexpr double kMeetingSeconds = 300;
/// What the links are measured with: some 20 ms a time at 100 Mbit/s.
constexpr std::size_t kProbeBytes = std::size_t{256} << 10;
constexpr int kProbes = 4;  // the first of which does not count
constexpr std::size_t kMaxTuningBytes = std::size_t{64} << 10;

AllReduceTuning read_tuning_file() {
  const std::string& file = environment().tuning_file;
  if (file.empty()) return {};
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in || text.str().size() > kMaxTuningBytes) {
    throw ValueError(fmt::format("CROSSDEVICE_TUNING_FILE: {} cannot be read", file));
  }
  return parse_all_reduce_tuning(text.str());
}

/// Everybody takes the slowest of all.
LinkModel slowest_of_all(Cluster& cluster, const LinkModel& measured) {
  const std::array<double, 3> mine = {measured.latency_seconds, measured.ring_bytes_per_second,
                                      measured.mesh_bytes_per_second};
  const std::string bytes(reinterpret_cast<const char*>(mine.data()), sizeof mine);
  LinkModel links = measured;
  for (const std::string& theirs : cluster.all_gather_bytes(bytes, kMeetingSeconds)) {
    std::array<double, 3> values{};
    if (theirs.size() != sizeof values) throw InternalError("a measurement cannot be read");
    std::memcpy(values.data(), theirs.data(), sizeof values);
    links.latency_seconds = std::max(links.latency_seconds, values[0]);
    links.ring_bytes_per_second = std::min(links.ring_bytes_per_second, values[1]);
    links.mesh_bytes_per_second = std::min(links.mesh_bytes_per_second, values[2]);
  }
  return links;
}

}  // namespace

AllReduceTuning receive_tuning(Cluster& cluster) {
  constexpr char kTuning = 'T';
  constexpr char kTrouble = 'E';
  std::string mine;
  if (cluster.rank() == 0) {
    try {
      mine = kTuning + to_string(read_tuning_file());
    } catch (const std::exception& error) {
      mine = kTrouble + std::string(error.what());
    }
  }
  const std::string theirs = cluster.broadcast_bytes(mine, 0, kMeetingSeconds);
  if (theirs.empty() || theirs[0] != kTuning) {
    throw ValueError("rank 0: " + theirs.substr(std::min<std::size_t>(1, theirs.size())));
  }
  return parse_all_reduce_tuning(theirs.substr(1));
}

LinkModel measure_links(Cluster& cluster, Transport& transport, MessageBarrier& barrier,
                        ScratchMemory& scratch, bool is_mesh) {
  const auto num_ranks = static_cast<std::size_t>(transport.num_ranks());
  const auto rank = static_cast<std::size_t>(transport.rank());
  const auto transfers = std::make_unique<Transfer[]>(2 * num_ranks);
  const auto transfer = [&](std::size_t of_rank, bool is_send) -> Transfer& {
    return transfers[2 * of_rank + (is_send ? 1 : 0)];
  };
  using Clock = std::chrono::steady_clock;
  const Deadline deadline = Deadline::after_timeout_seconds(kMeetingSeconds);
  transport.begin({.kind = "link measurement"});
  const auto fastest = [&](const auto& probe) {
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kProbes; ++i) {
      barrier.wait(deadline);
      const Clock::time_point begin = Clock::now();
      probe();
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      if (i > 0) best = std::min(best, seconds);
    }
    return best;
  };
  // To the ranks at these distances and from those at the same, a part each, all at once.
  const auto send_round = [&](std::size_t num_distances) {
    const std::size_t part = kProbeBytes / num_distances;
    std::byte* const memory = scratch.reserve(2 * kProbeBytes);
    for (std::size_t distance = 1; distance <= num_distances; ++distance) {
      const std::size_t to = (rank + distance) % num_ranks;
      const std::size_t from = (rank + num_ranks - distance) % num_ranks;
      std::byte* const at = memory + (distance - 1) * part;
      transport.send(static_cast<int>(to), {at, part}, transfer(to, true));
      transport.receive(static_cast<int>(from), {at + kProbeBytes, part}, transfer(from, false));
    }
    for (std::size_t distance = 1; distance <= num_distances; ++distance) {
      transport.wait(transfer((rank + num_ranks - distance) % num_ranks, false), deadline);
      transport.wait(transfer((rank + distance) % num_ranks, true), deadline);
    }
    while (transport.take_completed() != nullptr) {
    }
  };
  std::memset(scratch.reserve(2 * kProbeBytes), 0, kProbeBytes);
  const auto num_rounds = static_cast<double>(barrier.num_rounds());
  LinkModel links;
  links.latency_seconds = fastest([&] { barrier.wait(deadline); }) / num_rounds;
  const auto bandwidth = [&](double seconds) {
    // A time below the latency is noise.
    return static_cast<double>(kProbeBytes) /
           std::max(seconds - links.latency_seconds, seconds / 2);
  };
  links.ring_bytes_per_second = bandwidth(fastest([&] { send_round(1); }));
  links.mesh_bytes_per_second = is_mesh && num_ranks > 2
                                    ? bandwidth(fastest([&] { send_round(num_ranks - 1); }))
                                    : links.ring_bytes_per_second;
  return slowest_of_all(cluster, links);
}

std::string describe(const AllReduceTuning& tuning, std::size_t num_ranks, bool is_mesh) {
  std::string text = fmt::format(
      "all-reduce among {} workers that exchange messages: {:.1f} us a round, {:.1f} MB/s in a "
      "ring, {:.1f} MB/s in a mesh{};",
      num_ranks, tuning.links->latency_seconds * 1e6, tuning.links->ring_bytes_per_second / 1e6,
      tuning.links->mesh_bytes_per_second / 1e6, tuning.pins.empty() ? "" : ", choices pinned");
  std::optional<AllReduceAlgorithm> last;
  for (std::size_t size = 8; size <= std::size_t{1} << 30; size *= 2) {
    const AllReduceAlgorithm choice = choose_all_reduce(num_ranks, size, is_mesh, tuning);
    if (choice != last) text += fmt::format(" {} from {}", to_string(choice), format_bytes(size));
    last = choice;
  }
  return text;
}

}  // namespace crossdevice::detail
