// SPDX-License-Identifier: Apache-2.0
/// Whether a process that does the same for long has more and more: memory, threads, descriptors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace crossdevice::chaos {

/// What a process has at one time.
struct Footprint {
  std::size_t heap_bytes = 0;     ///< in use
  std::size_t pool_bytes = 0;     ///< handed out by the pools and not given back
  std::size_t private_bytes = 0;  ///< resident, and of this process alone
  std::size_t shared_bytes = 0;
  std::size_t threads = 0;
  std::size_t descriptors = 0;  ///< but for those of the segments
  std::size_t segments = 0;     ///< of the pools
};

/// By how much more there may be in the last quarter.
struct GrowthSlack {
  std::size_t heap_bytes = std::size_t{64} << 10;  // tables, and what threads keep for themselves
  std::size_t pool_bytes = std::size_t{64} << 10;
  std::size_t private_bytes = std::size_t{2} << 20;  // pages that the allocator keeps
  /// For sizes that meet for the first time late; what is lost of pools is in their bytes.
  std::size_t segments = 1;
};

/// Compares what there is after the first half of the calls, until which caches fill. Of memory the least of the third quarter with the least of the last one:
/// what is lost stays, while what a call holds comes and goes; so a loss of N bytes in each call shows as N times the calls of a quarter. Of pools the number of
/// their segments: how much of these is resident goes up and down with the sizes that were called last.
class Growth {
 public:
  explicit Growth(std::uint64_t calls) : calls_(calls) {}

  /// Whether to look after this call, from 1; some two hundred times in all.
  [[nodiscard]] bool is_due(std::uint64_t call) const;
  /// What there is after a call that is due, when nothing of it is held any more.
  void note(std::uint64_t call, const Footprint& now);

  /// What the last quarter has more of: "heap", "pools", "private memory", "threads", "descriptors", "segments". Empty: nothing.
  [[nodiscard]] std::vector<std::string> what_grows(const GrowthSlack& slack) const;
  [[nodiscard]] std::string text() const;

 private:
  struct Quarter {
    Footprint least{.heap_bytes = std::numeric_limits<std::size_t>::max(),
                    .pool_bytes = std::numeric_limits<std::size_t>::max(),
                    .private_bytes = std::numeric_limits<std::size_t>::max()};  // of memory
    Footprint most{};
    [[nodiscard]] std::string text() const;
  };

  std::uint64_t calls_;
  Quarter third_;
  Quarter last_;
};

}  // namespace crossdevice::chaos
