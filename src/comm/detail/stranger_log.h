// SPDX-License-Identifier: Apache-2.0
/// What the log says of those who wanted to come in and were refused: once of each address and reason, however often they come.
#pragma once

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
  /// How many lines there are at most; the last one says that there will be no more.
  static constexpr std::size_t kMaxLines = 64;

  /// Where they come to, as the lines call it: "the chief (rank 0)".
  void set_door(std::string door) { door_ = std::move(door); }
  /// "<door> refused a connection from 10.0.0.9 (port 4711): <text>". `reason`: equal for what is one reason, of which there must be few.
  void note(const asio::ip::tcp::endpoint& from, std::string_view reason, std::string_view text);

 private:
  std::string door_ = "this process";
  std::set<std::string, std::less<>> said_;
};

}  // namespace crossdevice::detail
