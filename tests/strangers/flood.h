// SPDX-License-Identifier: Apache-2.0
/// A generator of strangers: connections that come one upon the other and say nothing, noise, a frame's head with a length that no frame has, or a hello
/// without a proof, each in turn, or what they are told to say.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace crossdevice::strangers {

struct FloodOptions {
  std::vector<std::uint16_t> ports;  // of 127.0.0.1, in turn
  std::size_t count = 0;             // of connections; 0: until it is over
  std::size_t at_once = 64;
  /// How long one stays that the other side does not end; then it is reset, so that no port is used up.
  std::chrono::milliseconds stay{20};
  std::size_t per_second = 0;                       // 0: as many as it can
  std::atomic<std::uint64_t>* num_begun = nullptr;  // counts connections while it goes on
  std::vector<std::string> words{};  // which they say in turn; none: words_of_stranger()
};

struct FloodCounts {
  std::size_t connected = 0;  // as far as the kernel is concerned
  std::size_t ended = 0;      // of these, ended by the other side
  std::size_t failed = 0;
};

/// What the n-th stranger says.
[[nodiscard]] std::string words_of_stranger(std::size_t n);

/// Returns when all have come and gone, or `is_over()`.
FloodCounts flood(const FloodOptions& options, const std::function<bool()>& is_over);

}  // namespace crossdevice::strangers
