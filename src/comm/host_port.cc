// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/host_port.h"

#include <charconv>

#include <fmt/format.h>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {

HostPort parse_host_port(std::string_view text) {
  const auto fail = [&](const char* what) {
    return ValueError(
        fmt::format("\"{}\" is no address: {}; expected host:port or [address]:port", text, what));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) throw fail("there is no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    throw fail("an IPv6 address needs brackets");
  }
  if (host.empty()) throw fail("there is no host");
  std::uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc{} || end != port.data() + port.size() || number == 0) {
    throw fail("the port is no number from 1 to 65535");
  }
  return {std::string(host), number};
}

std::string join_host_port(const std::string& host, std::uint16_t port) {
  const bool needs_brackets = host.find(':') != std::string::npos && !host.starts_with('[');
  return needs_brackets ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

}  // namespace crossdevice::detail
