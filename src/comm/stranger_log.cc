// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/stranger_log.h"

#include <utility>

#include <fmt/format.h>

#include "crossdevice/core/log.h"

#include "comm/detail/plain_address.h"

namespace crossdevice::detail {

void StrangerLog::note(const asio::ip::tcp::endpoint& from, std::string_view reason,
                       std::string_view text, Clock::time_point now) {
  const std::string address = plain_address(from.address()).to_string();
  std::string said = fmt::format("{} {}", address, reason);
  if (said_.contains(said)) return;
  if (num_lines_ >= kMaxLines && now < last_line_ + kBetweenFurther) {
    ++num_unnamed_;
    return;
  }
  if (said_.size() >= kMaxSaid) said_.clear();
  said_.insert(std::move(said));
  last_line_ = now;
  std::string line = fmt::format("{} refused a connection from {} (port {}): {}", door_, address,
                                 from.port(), text);
  if (num_unnamed_ != 0) {
    line += fmt::format("; {} before it are not named", std::exchange(num_unnamed_, 0));
  }
  log(LogSeverity::WARNING, line);
  if (++num_lines_ == kMaxLines) {
    log(LogSeverity::WARNING,
        fmt::format("{} has refused so many connections that it names one a minute from now on",
                    door_));
  }
}

}  // namespace crossdevice::detail
