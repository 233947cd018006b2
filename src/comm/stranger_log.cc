// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/stranger_log.h"

#include <fmt/format.h>

#include "crossdevice/core/log.h"

#include "comm/detail/plain_address.h"

namespace crossdevice::detail {

void StrangerLog::note(const asio::ip::tcp::endpoint& from, std::string_view reason,
                       std::string_view text) {
  if (said_.size() >= kMaxLines) return;
  const std::string address = plain_address(from.address()).to_string();
  if (!said_.insert(fmt::format("{} {}", address, reason)).second) return;
  log(LogSeverity::WARNING, fmt::format("{} refused a connection from {} (port {}): {}", door_,
                                        address, from.port(), text));
  if (said_.size() == kMaxLines) {
    log(LogSeverity::WARNING,
        fmt::format("{} has refused so many connections that it says nothing of further ones",
                    door_));
  }
}

}  // namespace crossdevice::detail
