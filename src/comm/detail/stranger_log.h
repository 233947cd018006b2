// SPDX-License-Identifier: Apache-2.0
/// What the log says of those who wanted to come in and were refused: once of each address and reason, however often they come. Of how many addresses depends on
/// how they come: some lines are said at once, then one a minute, which says how many were not named before it.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <asio/ip/tcp.hpp>

namespace crossdevice::detail {

/// Bounded: in lines and in memory, whoever comes and whatever they say.
///
/// Threads  one at a time.
class StrangerLog {
 public:
  using Clock = std::chrono::steady_clock;
  /// How many lines are said at once.
  static constexpr std::size_t kMaxLines = 64;
  static constexpr std::chrono::minutes kBetweenFurther{1};
  /// How many are remembered; then all are forgotten.
  static constexpr std::size_t kMaxSaid = 4096;

  /// Where they come to, as the lines call it: "the chief (rank 0)".
  void set_door(std::string door) { door_ = std::move(door); }
  /// "<door> refused a connection from 10.0.0.9 (port 4711): <text>". `reason`: equal for what is one reason, of which there must be few.
  void note(const asio::ip::tcp::endpoint& from, std::string_view reason, std::string_view text,
            Clock::time_point now = Clock::now());

 private:
  std::string door_ = "this process";
  std::set<std::string, std::less<>> said_;
  std::size_t num_lines_ = 0;
  std::size_t num_unnamed_ = 0;
  Clock::time_point last_line_;
};

}  // namespace crossdevice::detail
