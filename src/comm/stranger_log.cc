// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/stranger_log.h"

#include <asio/ip/address.hpp>
#include <fmt/format.h>

#include "crossdevice/core/log.h"

namespace crossdevice::detail {
namespace {

/// As an operator writes it: IPv4 where it is one.
std::string text_of(const asio::ip::address& address) {
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address.to_string();
  return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
}

}  // namespace

void StrangerLog::note(const asio::ip::tcp::endpoint& from, std::string_view reason,
                       std::string_view text) {
  if (said_.size() >= kMaxLines) return;
  const std::string address = text_of(from.address());
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
