// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/tuning_agreement.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <system_error>

#include <fmt/format.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/format_bytes.h"

namespace crossdevice::detail {
namespace {

/// What the links are measured with: some 20 ms a time at 100 Mbit/s; and where they are faster, so that bursts do not flatter them.
constexpr std::size_t kProbeBytes = std::size_t{256} << 10;
constexpr std::size_t kLongProbeBytes = std::size_t{2} << 20;
constexpr double kFastBytesPerSecond = 5e7;
/// What a mesh may carry more than a ring for no reason.
constexpr double kNoise = 1.25;
constexpr int kProbes = 4;  // the first of which does not count
/// Rounds of empty messages come one after the other, as many as this takes, so that none of them wakes up who sleeps.
constexpr double kEmptyRoundsSeconds = 2e-3;
constexpr double kMaxEmptyRounds = 50;
constexpr std::size_t kMaxTuningBytes = std::size_t{64} << 10;

AllReduceTuning read_tuning_file() {
  const std::string& file = environment().tuning_file;
  if (file.empty()) return {};
  std::ifstream in(file, std::ios::binary);
  const int why = errno;
  if (!in.is_open() && (why == EMFILE || why == ENFILE || why == ENOMEM)) {
    throw ResourceExhaustedError(fmt::format("CROSSDEVICE_TUNING_FILE: {} cannot be opened: {}",
                                             file, std::generic_category().message(why)));
  }
  std::ostringstream text;
  text << in.rdbuf();
  if (!in || text.str().size() > kMaxTuningBytes) {
    throw ValueError(fmt::format("CROSSDEVICE_TUNING_FILE: {} cannot be read", file));
  }
  return parse_all_reduce_tuning(text.str());
}

/// Rounds of messages, all ranks at once, timed.
class LinkProbe {
 public:
  LinkProbe(Transport& transport, MessageBarrier& barrier, ScratchMemory& scratch,
            const Deadline& deadline)
      : transport_(transport),
        barrier_(barrier),
        scratch_(scratch),
        deadline_(deadline),
        num_ranks_(transport.num_ranks()),
        rank_(transport.rank()),
        transfers_(std::make_unique<Transfer[]>(2 * static_cast<std::size_t>(num_ranks_))) {}

  /// A first look, by which all choose how to look again.
  double measure_latency() { return seconds_of_a_barrier(1) / barrier_.num_rounds(); }

  LinkModel measure(std::size_t probe_bytes, double rough_latency_seconds, bool is_mesh) {
    std::memset(scratch_.reserve(2 * probe_bytes), 0, probe_bytes);
    LinkModel links;
    const int repetitions = static_cast<int>(
        std::clamp(kEmptyRoundsSeconds / rough_latency_seconds, 1.0, kMaxEmptyRounds));
    links.latency_seconds = repetitions == 1
                                ? rough_latency_seconds
                                : seconds_of_a_barrier(repetitions) / barrier_.num_rounds();
    const auto bandwidth = [&](int num_distances) {
      const double seconds = fastest(1, [&] { send_round(probe_bytes, num_distances); });
      // A time below the latency is noise.
      return static_cast<double>(probe_bytes) /
             std::max(seconds - links.latency_seconds, seconds / 2);
    };
    links.ring_bytes_per_second = bandwidth(1);
    links.mesh_bytes_per_second = links.ring_bytes_per_second;
    if (is_mesh && num_ranks_ > 2) {
      links.mesh_bytes_per_second = bandwidth(num_ranks_ - 1);
      const double seconds =
          fastest(repetitions, [this] { send_round(0, num_ranks_ - 1); }) / repetitions;
      links.message_seconds =
          std::max(0.0, seconds - links.latency_seconds) / static_cast<double>(num_ranks_ - 2);
    }
    return links;
  }

 private:
  double seconds_of_a_barrier(int repetitions) {
    return fastest(repetitions, [this] { barrier_.wait(deadline_); }) / repetitions;
  }
  /// Of so many rounds.
  template <class Round>
  double fastest(int num_rounds, const Round& round) {
    using Clock = std::chrono::steady_clock;
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kProbes; ++i) {
      barrier_.wait(deadline_);
      const Clock::time_point begin = Clock::now();
      for (int r = 0; r < num_rounds; ++r) round();
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      if (i > 0) best = std::min(best, seconds);
    }
    return best;
  }
  /// To the ranks at distances up to this and from those at the same, a part each.
  void send_round(std::size_t probe_bytes, int num_distances) {
    const std::size_t part = probe_bytes / static_cast<std::size_t>(num_distances);
    std::byte* at = scratch_.reserve(2 * probe_bytes);
    for (int distance = 1; distance <= num_distances; ++distance, at += part) {
      transport_.send(to(distance), {at, part}, transfer(distance, 0));
      transport_.receive(from(distance), {at + probe_bytes, part}, transfer(distance, 1));
    }
    for (int distance = 1; distance <= num_distances; ++distance) {
      transport_.wait(transfer(distance, 1), deadline_);
      transport_.wait(transfer(distance, 0), deadline_);
    }
  }
  [[nodiscard]] int to(int distance) const { return (rank_ + distance) % num_ranks_; }
  [[nodiscard]] int from(int distance) const {
    return (rank_ + num_ranks_ - distance) % num_ranks_;
  }
  [[nodiscard]] Transfer& transfer(int distance, std::size_t direction) const {
    return transfers_[2 * static_cast<std::size_t>(distance) + direction];
  }

  Transport& transport_;
  MessageBarrier& barrier_;
  ScratchMemory& scratch_;
  Deadline deadline_;
  int num_ranks_;
  int rank_;
  std::unique_ptr<Transfer[]> transfers_;
};

double longest_of_all(Cluster& cluster, double seconds, const Deadline& deadline) {
  const std::string bytes(reinterpret_cast<const char*>(&seconds), sizeof seconds);
  for (const std::string& theirs : cluster.all_gather_bytes(bytes, deadline)) {
    double value = 0;
    if (theirs.size() != sizeof value) throw InternalError("a measurement cannot be read");
    std::memcpy(&value, theirs.data(), sizeof value);
    seconds = std::max(seconds, value);
  }
  return seconds;
}

/// Everybody takes the slowest of all.
LinkModel slowest_of_all(Cluster& cluster, const LinkModel& measured, const Deadline& deadline) {
  const std::array<double, 4> mine = {measured.latency_seconds, measured.ring_bytes_per_second,
                                      measured.mesh_bytes_per_second, measured.message_seconds};
  const std::string bytes(reinterpret_cast<const char*>(mine.data()), sizeof mine);
  LinkModel links = measured;
  for (const std::string& theirs : cluster.all_gather_bytes(bytes, deadline)) {
    std::array<double, 4> values{};
    if (theirs.size() != sizeof values) throw InternalError("a measurement cannot be read");
    std::memcpy(values.data(), theirs.data(), sizeof values);
    links.latency_seconds = std::max(links.latency_seconds, values[0]);
    links.ring_bytes_per_second = std::min(links.ring_bytes_per_second, values[1]);
    links.mesh_bytes_per_second = std::min(links.mesh_bytes_per_second, values[2]);
    links.message_seconds = std::max(links.message_seconds, values[3]);
  }
  return links;
}

}  // namespace

AllReduceTuning receive_tuning(Cluster& cluster, const Deadline& deadline) {
  constexpr char kTuning = 'T';
  constexpr char kTrouble = 'E';
  constexpr char kNoMemory = 'M';
  constexpr char kExhausted = 'R';
  std::string mine;
  if (cluster.rank() == 0) {
    try {
      mine = kTuning + to_string(read_tuning_file());
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

LinkModel measure_links(Cluster& cluster, Transport& transport, MessageBarrier& barrier,
                        ScratchMemory& scratch, const LinkMeasurement& how) {
  transport.begin({.kind = "link measurement"});
  LinkProbe probe(transport, barrier, scratch, how.deadline);
  const double latency = longest_of_all(cluster, probe.measure_latency(), how.deadline);
  const LinkModel links =
      slowest_of_all(cluster, probe.measure(kProbeBytes, latency, how.is_mesh), how.deadline);
  if (links.ring_bytes_per_second < kFastBytesPerSecond) return without_noise(links);
  return without_noise(
      slowest_of_all(cluster, probe.measure(kLongProbeBytes, latency, how.is_mesh), how.deadline));
}

LinkModel without_noise(LinkModel links) {
  const bool is_noise = links.mesh_bytes_per_second > links.ring_bytes_per_second &&
                        links.mesh_bytes_per_second < kNoise * links.ring_bytes_per_second;
  if (is_noise) links.ring_bytes_per_second = links.mesh_bytes_per_second;
  return links;
}

std::string explain(std::span<const AllReduceCandidate> candidates) {
  std::string others;
  for (const AllReduceCandidate& each : candidates.subspan(1)) {
    others += fmt::format("{}{} {:.1f}", others.empty() ? "" : ", ", to_string(each.algorithm),
                          each.predicted_seconds * 1e6);
  }
  return fmt::format("{}, {:.1f} us expected ({})", to_string(candidates[0].algorithm),
                     candidates[0].predicted_seconds * 1e6, others);
}

std::string describe(const AllReduceTuning& tuning, std::size_t num_ranks, bool is_mesh) {
  std::string text = fmt::format(
      "all-reduce among {} workers that exchange messages: {:.1f} us a round and {:.1f} us each "
      "message more, {:.1f} MB/s in a ring, {:.1f} MB/s in a mesh{};",
      num_ranks, tuning.links->latency_seconds * 1e6, tuning.links->message_seconds * 1e6,
      tuning.links->ring_bytes_per_second / 1e6, tuning.links->mesh_bytes_per_second / 1e6,
      tuning.pins.empty() ? "" : ", choices pinned");
  std::optional<AllReduceAlgorithm> last;
  for (std::size_t size = 8; size <= std::size_t{1} << 30; size *= 2) {
    const AllReduceAlgorithm choice = choose_all_reduce(num_ranks, size, is_mesh, tuning);
    if (choice != last) text += fmt::format(" {} from {}", to_string(choice), format_bytes(size));
    last = choice;
  }
  return text;
}

}  // namespace crossdevice::detail
