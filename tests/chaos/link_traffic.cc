// SPDX-License-Identifier: Apache-2.0
#include "chaos/link_traffic.h"

#include <algorithm>
#include <utility>

namespace crossdevice::chaos {
namespace {

std::mt19937_64 engine_of(std::uint64_t seed, std::size_t host, unsigned direction) {
  std::seed_seq sequence{seed & 0xFFFFFFFFU, seed >> 32U, static_cast<std::uint64_t>(host),
                         std::uint64_t{direction}};
  return std::mt19937_64(sequence);
}

}  // namespace

LinkTraffic::LinkTraffic(int num_hosts, std::uint64_t seed) {
  links_.resize(static_cast<std::size_t>(num_hosts));
  for (std::size_t host = 0; host < links_.size(); ++host) {
    links_[host].out.engine = engine_of(seed, host, 0);
    links_[host].in.engine = engine_of(seed, host, 1);
  }
}

void LinkTraffic::set(int host, const LinkPolicy& policy) { link(host).policy = policy; }

void LinkTraffic::set_between(int a, int b, bool carries) {
  if (carries) {
    parted_.erase(std::minmax(a, b));
  } else {
    parted_.insert(std::minmax(a, b));
  }
}

const LinkCounts& LinkTraffic::counts(int host) const {
  return links_[static_cast<std::size_t>(host)].counts;
}

bool LinkTraffic::Way::happens(double part) {
  constexpr std::uint64_t kParts = 1'000'000;
  // Nothing is drawn for what never happens: another policy of one kind leaves the fate of the other kinds alone.
  return part > 0 && engine() % kParts < static_cast<std::uint64_t>(part * kParts);
}

/// When a packet that comes to a link has gone over it; nothing: it is lost.
std::optional<LinkTraffic::Time> LinkTraffic::pass(Link& link, Way& way, std::size_t num_bytes,
                                                   Time at) {
  const LinkPolicy& policy = link.policy;
  const Time came = at;
  const bool carries = &way == &link.out ? policy.sends : policy.receives;
  ++link.counts.offered;
  const auto lose = [&link]() -> std::optional<Time> {
    ++link.counts.lost;
    return std::nullopt;
  };
  if (!carries || way.happens(policy.lost)) return lose();
  if (policy.bytes_per_second > 0) {
    const auto time_for = [&policy](std::size_t bytes) {
      return std::chrono::nanoseconds(bytes * 1'000'000'000 / policy.bytes_per_second);
    };
    // A token bucket: time that was not used counts, up to a burst's.
    const Time is_free_at =
        std::max(way.is_free_at, at - time_for(kBurstBytes)) + time_for(num_bytes);
    if (is_free_at > at + kMaxBacklog) return lose();
    way.is_free_at = is_free_at;
    at = std::max(at, is_free_at);
  }
  at += policy.delay;
  if (at > came) ++link.counts.delayed;
  if (way.happens(policy.late)) {
    ++link.counts.late;
    constexpr std::chrono::nanoseconds kMax = kMaxLateness;
    at += std::chrono::nanoseconds(way.engine() % static_cast<std::uint64_t>(kMax.count()));
  }
  return at;
}

void LinkTraffic::send(int from, int to, std::span<const std::byte> packet, Time now) {
  Link& first = link(from);
  Link& second = link(to);
  if (is_parted(from, to)) {
    ++first.counts.offered;
    ++first.counts.lost;
    return;
  }
  const int num_copies = first.out.happens(first.policy.doubled) ? 2 : 1;
  if (num_copies > 1) ++first.counts.doubled;
  for (int copy = 0; copy < num_copies; ++copy) {
    const std::optional<Time> between = pass(first, first.out, packet.size(), now);
    if (!between.has_value()) continue;
    const bool is_doubled = second.in.happens(second.policy.doubled);
    if (is_doubled) ++second.counts.doubled;
    for (int again = 0; again < (is_doubled ? 2 : 1); ++again) {
      const std::optional<Time> due = pass(second, second.in, packet.size(), *between);
      if (due.has_value()) put(from, to, packet, *due);
    }
  }
}

void LinkTraffic::put(int from, int to, std::span<const std::byte> packet, Time due) {
  if (queued_bytes_ + packet.size() > kMaxQueuedBytes) {
    ++link(to).counts.lost;
    return;
  }
  queued_bytes_ += packet.size();
  under_way_.push_back({due, num_packets_++, from, to, {packet.begin(), packet.end()}});
  std::push_heap(under_way_.begin(), under_way_.end(), IsLater());
}

std::optional<LinkTraffic::Time> LinkTraffic::next() const {
  return under_way_.empty() ? std::nullopt : std::optional<Time>(under_way_.front().due);
}

std::optional<LinkTraffic::Arrival> LinkTraffic::arrival(Time now) {
  while (!under_way_.empty() && under_way_.front().due <= now) {
    std::pop_heap(under_way_.begin(), under_way_.end(), IsLater());
    Packet packet = std::move(under_way_.back());
    under_way_.pop_back();
    queued_bytes_ -= packet.bytes.size();
    if (!link(packet.from).policy.sends || !link(packet.to).policy.receives ||
        is_parted(packet.from, packet.to)) {
      ++link(packet.to).counts.lost;
      continue;
    }
    ++link(packet.to).counts.delivered;
    return Arrival{packet.to, std::move(packet.bytes)};
  }
  return std::nullopt;
}

}  // namespace crossdevice::chaos
