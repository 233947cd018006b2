// SPDX-License-Identifier: Apache-2.0
/// What the log says of those who wanted to come in and were refused: once of each address and reason, however often they come. Of how many addresses depends on
/// how they come: some lines are said at once, then one a minute, which says how many were not named before it. Of those who wanted nothing, as far as anybody
/// can say, the same is said apart, and not as a warning: what checks whether a port is open does that, and so do those of the job that are faster elsewhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <asio/ip/address.hpp>
#include <asio/ip/tcp.hpp>

#include "crossdevice/core/log.h"

namespace crossdevice::detail {

/// Bounded: in lines and in memory, whoever comes and whatever they say.
///
/// Threads  one at a time.
class StrangerLog {
 public:
  using Clock = std::chrono::steady_clock;
  /// How many lines are said at once, of those who were refused, and of the others.
  static constexpr std::size_t kMaxLines = 64;
  static constexpr std::chrono::minutes kBetweenFurther{1};
  /// How many are remembered; then all are forgotten.
  static constexpr std::size_t kMaxSaid = 4096;
  /// Of a visit.
  static constexpr const char* kWithoutAWord =
      "it came and went without a word (a health check, a port scan, or a worker that goes on "
      "elsewhere)";
  /// Of who is there when nobody is let in any more: of a visit, and of who has said a part of it, and has had the time for all of it.
  static constexpr const char* kNotYet = "it had not said who it is when the door was closed";
  static constexpr const char* kOnlyBegun =
      "it had only begun to say who it is when the door was closed";

  /// Where they come to, as the lines call it: "the chief (rank 0)".
  void set_door(std::string door) { door_ = std::move(door); }
  /// "<door> refused a connection from 10.0.0.9 (port 4711): <text>". `reason`: equal for what is one reason, of which there must be few.
  void note(const asio::ip::tcp::endpoint& from, std::string_view reason, std::string_view text,
            Clock::time_point now = Clock::now());
  /// "<door> had a visit from 10.0.0.9 (port 4711): <text>", as information, of somebody who said nothing.
  void note_visit(const asio::ip::tcp::endpoint& from, std::string_view text,
                  Clock::time_point now = Clock::now());

 private:
  /// What is said of one kind of them.
  struct Lines {
    LogSeverity severity;
    std::string_view what;  // "<door> <what> <address> ..."
    std::string_view many;  // "<door> <many> that it names one a minute from now on"
    /// Reasons, by address.
    std::map<asio::ip::address, std::set<std::string, std::less<>>> said{};
    std::size_t num_said = 0;  // reasons of all addresses
    std::size_t count = 0;     // lines
    std::size_t num_unnamed = 0;
    Clock::time_point last{};
  };
  void say(Lines& lines, const asio::ip::tcp::endpoint& from, std::string_view reason,
           std::string_view text, Clock::time_point now) const;

  std::string door_ = "this process";
  Lines refusals_{.severity = LogSeverity::WARNING,
                  .what = "refused a connection from",
                  .many = "has refused so many connections"};
  Lines visits_{
      .severity = LogSeverity::INFO, .what = "had a visit from", .many = "has had so many visits"};
};

}  // namespace crossdevice::detail
