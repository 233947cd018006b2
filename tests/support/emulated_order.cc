// SPDX-License-Identifier: Apache-2.0
#include "support/emulated_order.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace crossdevice::testing {
namespace {

// Beyond, the oldest are forgotten: a program of many small uses of one allocation is checked less far back.
constexpr std::size_t kMaxAccesses = 256;

std::string text_of(const EmulatedAccess& access) {
  return fmt::format("{} ({} bytes {} to {}) on stream {} of device {}", access.function,
                     access.writes ? "writes" : "reads", access.begin, access.end, access.stream,
                     access.device);
}

}  // namespace

void EmulatedClock::merge(const EmulatedClock& other) {
  if (ticks_.size() < other.ticks_.size()) ticks_.resize(other.ticks_.size());
  for (std::size_t stream = 0; stream < other.ticks_.size(); ++stream) {
    ticks_[stream] = std::max(ticks_[stream], other.ticks_[stream]);
  }
}

void EmulatedClock::set(std::size_t stream, std::uint64_t tick) {
  if (ticks_.size() <= stream) ticks_.resize(stream + 1);
  ticks_[stream] = tick;
}

std::string AccessHistory::add(EmulatedAccess access, const EmulatedClock& before) {
  std::string conflict;
  for (const EmulatedAccess& earlier : accesses_) {
    const bool overlaps = earlier.begin < access.end && access.begin < earlier.end;
    if (!overlaps || (!earlier.writes && !access.writes)) continue;
    if (earlier.stream == access.stream || before.of(earlier.stream) >= earlier.tick) continue;
    conflict = fmt::format("no order between {} and {}", text_of(earlier), text_of(access));
    break;
  }
  // What a write covers, or a read of the same stream repeats, says nothing more: whoever comes after this one comes after it.
  std::erase_if(accesses_, [&](const EmulatedAccess& earlier) {
    const bool is_covered = access.begin <= earlier.begin && earlier.end <= access.end;
    const bool is_before =
        earlier.stream == access.stream || before.of(earlier.stream) >= earlier.tick;
    return is_covered && is_before && (access.writes || !earlier.writes) &&
           (access.writes || earlier.stream == access.stream);
  });
  if (accesses_.size() >= kMaxAccesses) accesses_.erase(accesses_.begin());
  accesses_.push_back(std::move(access));
  return conflict;
}

}  // namespace crossdevice::testing
