// SPDX-License-Identifier: Apache-2.0
/// What becomes of packets on links that are not perfect: which are lost, and when the others arrive. No devices, no clock: whoever uses it says what time it is.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace crossdevice::chaos {

/// Of one host's link, each way by itself. Numbers from 0 to 1 are parts of the packets.
struct LinkPolicy {
  bool sends = true;  ///< its host's packets; a link that is down neither sends nor receives
  bool receives = true;
  double lost = 0;
  std::chrono::microseconds delay{0};
  double late = 0;  ///< come up to kMaxLateness after their turn, so behind others
  double doubled = 0;
  std::uint64_t bytes_per_second = 0;  ///< 0: no limit
};

/// What one host's link has done, both ways together.
struct LinkCounts {
  std::uint64_t offered = 0;  ///< given to the link by its host, and for its host
  std::uint64_t lost = 0;
  std::uint64_t late = 0;
  std::uint64_t doubled = 0;
  std::uint64_t delayed = 0;    ///< held back, by a delay or by a rate
  std::uint64_t delivered = 0;  ///< to its host
};

/// Packets between hosts, each of which goes over the sender's link and then over the receiver's. Equal seeds and equal packets at equal times share one fate.
///
/// Order    packets from one host to another keep their order as long as nothing is late and the policies stay as they are; a link that becomes quicker
///          lets new packets overtake old ones.
/// Memory   kMaxQueuedBytes of packets under way; what is more is lost, as in a switch.
class LinkTraffic {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Arrival {
    int to = 0;
    std::vector<std::byte> bytes;
  };

  static constexpr std::chrono::milliseconds kMaxLateness{10};
  /// A link with a rate carries so much at once after a rest, and keeps packets for so long before it loses more.
  static constexpr std::size_t kBurstBytes = 16384;
  static constexpr std::chrono::milliseconds kMaxBacklog{200};
  static constexpr std::size_t kMaxQueuedBytes = std::size_t{64} << 20;

  LinkTraffic(int num_hosts, std::uint64_t seed);

  /// For packets that are sent from now on; of those under way a link that is down loses what arrives.
  void set(int host, const LinkPolicy& policy);
  /// Whether anything passes between two hosts at all, whatever their links do; it does at first.
  void set_between(int a, int b, bool carries);
  /// Of hosts from 0 to num_hosts - 1. Time does not go backwards from call to call.
  void send(int from, int to, std::span<const std::byte> packet, Time now);
  /// When the next packet is due; nothing: none is under way.
  [[nodiscard]] std::optional<Time> next() const;
  /// The next packet that is due.
  [[nodiscard]] std::optional<Arrival> arrival(Time now);

  [[nodiscard]] const LinkCounts& counts(int host) const;

 private:
  /// One direction of a link.
  struct Way {
    std::mt19937_64 engine;
    Time is_free_at{};  // with a rate: when all that was sent before has gone
    [[nodiscard]] bool happens(double part);
  };
  struct Link {
    LinkPolicy policy{};
    LinkCounts counts{};
    Way out;
    Way in;
  };
  struct Packet {
    Time due{};
    std::uint64_t number = 0;
    int from = 0;
    int to = 0;
    std::vector<std::byte> bytes;
  };
  struct IsLater {
    bool operator()(const Packet& a, const Packet& b) const {
      return a.due != b.due ? a.due > b.due : a.number > b.number;
    }
  };

  [[nodiscard]] Link& link(int host) { return links_[static_cast<std::size_t>(host)]; }
  static std::optional<Time> pass(Link& link, Way& way, std::size_t num_bytes, Time at);
  void put(int from, int to, std::span<const std::byte> packet, Time due);
  [[nodiscard]] bool is_parted(int a, int b) const { return parted_.contains(std::minmax(a, b)); }

  std::vector<Link> links_;
  std::set<std::pair<int, int>> parted_;  // the lower one first
  std::vector<Packet> under_way_;         // a heap: the next one first
  std::size_t queued_bytes_ = 0;
  std::uint64_t num_packets_ = 0;
};

}  // namespace crossdevice::chaos
