// SPDX-License-Identifier: Apache-2.0
/// --hosts and --hostfile: which hosts there are, and how many workers each takes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace crossdevice::run {

inline constexpr int kMaxSlots = 1024;

struct Host {
  std::string
      name;       ///< what the remote shell is told: a name, an address, or either behind "USER@"
  int slots = 1;  ///< how many workers it takes
};

/// "a:4,b,user@c:2,[::1]:2": an IPv6 address stands in brackets where slots follow it.
///
/// Errors   programs::ArgumentError: an empty name, one that a shell or a remote shell would take for something else, slots outside 1..kMaxSlots.
[[nodiscard]] std::vector<Host> parse_hosts(std::string_view text);

/// One host per line: "a slots=4", "a:4" or "a"; what follows # is a comment.
///
/// Errors   programs::ArgumentError, with the line's number; also where the file cannot be read or names no host.
[[nodiscard]] std::vector<Host> read_hostfile(const std::string& path);

}  // namespace crossdevice::run
