// SPDX-License-Identifier: Apache-2.0
/// "host:port" and "[address]:port".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace crossdevice::detail {

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
  friend bool operator==(const HostPort&, const HostPort&) = default;
};

/// Errors   ValueError: no host, no port, a port outside [1, 65535], an IPv6 address without brackets.
[[nodiscard]] HostPort parse_host_port(std::string_view text);

/// "host:port", with brackets around an IPv6 address that has none.
[[nodiscard]] std::string join_host_port(const std::string& host, std::uint16_t port);

}  // namespace crossdevice::detail
