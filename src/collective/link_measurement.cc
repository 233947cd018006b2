// SPDX-License-Identifier: Apache-2.0
/// Why all ranks make the same rounds, though each has its own clock and sees other links. What a rank has found enters no decision of its own: it is taken
/// to a meeting, a barrier whose messages carry the longest times that their senders know of, and after round k everybody knows those of 2^k ranks. A maximum
/// does not depend on the order in which it is taken, nor on how often a rank's time enters it: so after a meeting all know the same times, to the
/// bit. Every decision (to look again, how often, with how many bytes, to end) follows from these, from constants and from the number of ranks.
#include "collective/detail/link_measurement.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/core/error.h"

#include "collective/detail/message_barrier.h"

namespace crossdevice::detail {
namespace {

/// What all may take; the rounds that are under way then are brought to their end.
constexpr double kMeasuringSeconds = 1;
/// Three looks that took longer are believed, shorter ones may have been hiccups.
constexpr double kLookSeconds = 0.1;
/// After this there is no time for another look.
constexpr double kHopelessSeconds = 0.3;
/// What is measured once more, or not at all.
constexpr int kMinProbes = 2;
constexpr double kShortRoundsSeconds = 2e-3;
constexpr double kTickSeconds = 1e-9;
/// From here on nobody notices what a message costs the processor.
constexpr double kLongLatencySeconds = 1e-2;
constexpr double kFastBytesPerSecond = 5e7;
/// What a mesh may carry more than a ring for no reason.
constexpr double kNoise = 1.25;

/// The longest times, of one rank or of all.
struct Findings {
  double elapsed_seconds = 0;  // since all had come
  double round_seconds = 0;    // the fastest of what is measured at the moment
  double meeting_seconds = 0;  // the fastest
};

Findings slower(const Findings& a, const Findings& b) {
  return {.elapsed_seconds = std::max(a.elapsed_seconds, b.elapsed_seconds),
          .round_seconds = std::max(a.round_seconds, b.round_seconds),
          .meeting_seconds = std::max(a.meeting_seconds, b.meeting_seconds)};
}

/// The first does not count where there is another.
void keep_fastest(double& fastest, int number, double seconds) {
  if (number <= 1 || seconds < fastest) fastest = seconds;
}

/// A time below the latency is noise.
double bytes_per_second(std::size_t bytes, double seconds, double latency_seconds) {
  return static_cast<double>(bytes) / std::max(seconds - latency_seconds, seconds / 2);
}

/// Rounds of messages, all ranks at once, timed.
class LinkProbe {
 public:
  LinkProbe(Transport& transport, ScratchMemory& scratch, const LinkMeasurement& how)
      : transport_(transport),
        scratch_(scratch),
        how_(how),
        num_ranks_(transport.num_ranks()),
        rank_(transport.rank()),
        has_mesh_(how.is_mesh && num_ranks_ > 2),
        barrier_(transport),
        num_meeting_rounds_(barrier_.num_rounds()),
        transfers_(std::make_unique<Transfer[]>(2 * static_cast<std::size_t>(num_ranks_))),
        heard_(static_cast<std::size_t>(num_ranks_)) {}

  LinkModel measure() {
    std::memset(scratch_.reserve(2 * kLookBytes), 0, 2 * kLookBytes);
    meet();
    begin_ = how_.now();
    look();
    // Hopeless: what this rank has found; the others tell of theirs when all have ended.
    if (affordable_probes(0, all_.round_seconds) < kMinProbes) return by_look(found_);
    meet();
    LinkModel links = by_look(all_);
    const int num_rounds = static_cast<int>(
        std::clamp(kShortRoundsSeconds / links.latency_seconds, 1.0, double{kMaxShortRounds}));
    if (num_rounds > 1) {
      links.latency_seconds =
          fastest(kLinkProbes, [&] { return repeat(num_rounds, [this] { meet(); }); }) /
          num_meeting_rounds_;
    }
    if (has_mesh_ && links.latency_seconds < kLongLatencySeconds && !is_over()) {
      const double seconds =
          fastest(kLinkProbes, [&] { return repeat(num_rounds, [this] { meet_directly(); }); });
      links.message_seconds =
          std::max(0.0, seconds - links.latency_seconds) / static_cast<double>(num_ranks_ - 2);
    }
    measure_bandwidths(links);
    return links;
  }

 private:
  void look() {
    for (int i = 0; i < kLinkProbes; ++i) {
      const auto begin = how_.now();
      send_round(kLookBytes, 1);
      keep_fastest(found_.round_seconds, i, seconds_since(begin));
      const auto middle = how_.now();
      meet();
      keep_fastest(found_.meeting_seconds, i, seconds_since(middle));
      // Of three looks the first, which finds everything cold, does not count, and one of the others may have been held up by anything but the link.
      if (all_.elapsed_seconds > (i < 2 ? kHopelessSeconds : kLookSeconds)) return;
    }
  }
  /// Bytes that took hardly longer than none say nothing of the rate, which is then taken for the usual one: who believes in too high a rate takes few rounds
  /// and loses what idleness costs, some per cent; who believes in too low a rate takes more rounds, each of which costs what made the look so long.
  [[nodiscard]] LinkModel by_look(const Findings& found) const {
    LinkModel links;
    links.latency_seconds = found.meeting_seconds / num_meeting_rounds_;
    if (found.round_seconds > 2 * links.latency_seconds) {
      links.ring_bytes_per_second =
          bytes_per_second(kLookBytes, found.round_seconds, links.latency_seconds);
    }
    links.mesh_bytes_per_second = links.ring_bytes_per_second;
    return links;
  }
  void measure_bandwidths(LinkModel& links) {
    for (const std::size_t bytes : {kProbeBytes, kLongProbeBytes}) {
      const int num_probes = affordable_probes(
          static_cast<double>(bytes) / links.ring_bytes_per_second, links.latency_seconds);
      if (num_probes < kMinProbes) return;
      std::memset(scratch_.reserve(2 * bytes), 0, 2 * bytes);
      const auto bandwidth = [&](int num_distances) {
        const double seconds = fastest(num_probes, [&] {
          send_round(bytes, num_distances);
          return 1;
        });
        return bytes_per_second(bytes, seconds, links.latency_seconds);
      };
      links.ring_bytes_per_second = bandwidth(1);
      links.mesh_bytes_per_second =
          has_mesh_ && !is_over() ? bandwidth(num_ranks_ - 1) : links.ring_bytes_per_second;
      if (links.ring_bytes_per_second < kFastBytesPerSecond) return;
    }
  }

  /// How many, each way, fit into what is left of the time.
  [[nodiscard]] int affordable_probes(double bytes_seconds, double latency_seconds) const {
    const double one =
        (has_mesh_ ? 2 : 1) * ((1 + num_meeting_rounds_) * latency_seconds + bytes_seconds);
    const double left = kMeasuringSeconds - all_.elapsed_seconds;
    return static_cast<int>(std::clamp(left / one, 0.0, double{kLinkProbes}));
  }
  [[nodiscard]] bool is_over() const { return all_.elapsed_seconds > kMeasuringSeconds; }

  /// Of so many probes, or of those until the time is over; the time of a round on the slowest rank. Everybody knows it.
  template <class Rounds>
  double fastest(int num_probes, const Rounds& make_rounds) {
    for (int i = 0; i < num_probes; ++i) {
      const auto begin = how_.now();
      const int num_rounds = make_rounds();
      keep_fastest(found_.round_seconds, i, seconds_since(begin) / num_rounds);
      meet();  // all know, and all begin the next one together
      if (is_over()) break;
    }
    return all_.round_seconds;
  }
  /// How many it were, of rounds after which all know whether the time is over.
  template <class Round>
  [[nodiscard]] int repeat(int num_rounds, const Round& make_round) const {
    for (int i = 1; i < num_rounds; ++i) {
      make_round();
      if (is_over()) return i;
    }
    make_round();
    return num_rounds;
  }

  void meet() { all_ = barrier_.wait(findings(), slower, how_.deadline); }
  /// The same in one round, of a message to each.
  void meet_directly() {
    const Findings told = findings();
    for (int distance = 1; distance < num_ranks_; ++distance) {
      Findings& heard = heard_[static_cast<std::size_t>(distance)];
      transport_.send(to(distance), std::as_bytes(std::span(&told, 1)), transfer(distance, 0));
      transport_.receive(from(distance), std::as_writable_bytes(std::span(&heard, 1)),
                         transfer(distance, 1));
    }
    all_ = told;
    for (int distance = 1; distance < num_ranks_; ++distance) {
      transport_.wait(transfer(distance, 1), how_.deadline);
      transport_.wait(transfer(distance, 0), how_.deadline);
      all_ = slower(all_, heard_[static_cast<std::size_t>(distance)]);
    }
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
      transport_.wait(transfer(distance, 1), how_.deadline);
      transport_.wait(transfer(distance, 0), how_.deadline);
    }
  }

  [[nodiscard]] Findings findings() const {
    Findings told = found_;
    if (begin_.has_value()) told.elapsed_seconds = seconds_since(*begin_);
    return told;
  }
  /// Something, so that it may divide.
  [[nodiscard]] double seconds_since(Deadline::Clock::time_point begin) const {
    return std::max(std::chrono::duration<double>(how_.now() - begin).count(), kTickSeconds);
  }
  [[nodiscard]] int to(int distance) const { return (rank_ + distance) % num_ranks_; }
  [[nodiscard]] int from(int distance) const {
    return (rank_ + num_ranks_ - distance) % num_ranks_;
  }
  [[nodiscard]] Transfer& transfer(int distance, std::size_t direction) const {
    return transfers_[2 * static_cast<std::size_t>(distance) + direction];
  }

  Transport& transport_;
  ScratchMemory& scratch_;
  const LinkMeasurement& how_;
  int num_ranks_;
  int rank_;
  bool has_mesh_;  // which is more than a ring
  MessageBarrier barrier_;
  int num_meeting_rounds_;
  std::optional<Deadline::Clock::time_point> begin_;  // when all had come
  Findings found_;                                    // by this rank
  Findings all_;                                      // what all know
  std::unique_ptr<Transfer[]> transfers_;
  std::vector<Findings> heard_;
};

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

LinkModel measure_links(Cluster& cluster, Transport& transport, ScratchMemory& scratch,
                        const LinkMeasurement& how) {
  transport.begin({.kind = "link measurement"});
  try {
    LinkProbe probe(transport, scratch, how);
    return without_noise(slowest_of_all(cluster, probe.measure(), how.deadline));
  } catch (const OpError& error) {
    // What has been connected before may have taken most of the time that a wait in it is then said to have had.
    throw_anew(error, fmt::format("while the links were measured: {}", error.what()),
               error.operation(), error.inputs_intact());
  }
}

LinkModel without_noise(LinkModel links) {
  const bool is_noise = links.mesh_bytes_per_second > links.ring_bytes_per_second &&
                        links.mesh_bytes_per_second < kNoise * links.ring_bytes_per_second;
  if (is_noise) links.ring_bytes_per_second = links.mesh_bytes_per_second;
  return links;
}

}  // namespace crossdevice::detail
