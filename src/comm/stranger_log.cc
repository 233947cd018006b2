// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/stranger_log.h"

#include <utility>

#include <fmt/format.h>

#include "comm/detail/plain_address.h"

namespace crossdevice::detail {

void StrangerLog::note(const asio::ip::tcp::endpoint& from, std::string_view reason,
                       std::string_view text, Clock::time_point now) {
  say(refusals_, from, reason, text, now);
}

void StrangerLog::note_visit(const asio::ip::tcp::endpoint& from, std::string_view text,
                             Clock::time_point now) {
  say(visits_, from, "", text, now);
}

void StrangerLog::say(Lines& lines, const asio::ip::tcp::endpoint& from, std::string_view reason,
                      std::string_view text, Clock::time_point now) const {
  const asio::ip::address address = plain_address(from.address());
  const auto known = lines.said.find(address);
  if (known != lines.said.end() && known->second.contains(reason)) return;
  if (lines.count >= kMaxLines && now < lines.last + kBetweenFurther) {
    ++lines.num_unnamed;
    return;
  }
  if (lines.num_said >= kMaxSaid) {
    lines.said.clear();
    lines.num_said = 0;
  }
  lines.said[address].emplace(reason);
  ++lines.num_said;
  lines.last = now;
  std::string line = fmt::format("{} {} {} (port {}): {}", door_, lines.what, address.to_string(),
                                 from.port(), text);
  if (lines.num_unnamed != 0) {
    line += fmt::format("; {} before it are not named", std::exchange(lines.num_unnamed, 0));
  }
  log(lines.severity, line);
  if (++lines.count == kMaxLines) {
    log(lines.severity,
        fmt::format("{} {} that it names one a minute from now on", door_, lines.many));
  }
}

}  // namespace crossdevice::detail
