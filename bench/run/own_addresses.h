// SPDX-License-Identifier: Apache-2.0
/// This machine's names and addresses.
#pragma once

#include <string>
#include <vector>

namespace crossdevice::run {

/// An address of an interface that is up.
struct OwnAddress {
  std::string text;
  bool is_loopback = false;
  bool is_v6 = false;
  std::string interface {};
};

/// In the kernel's order, without those that reach no further than their link.
[[nodiscard]] std::vector<OwnAddress> own_addresses();

/// Whether a host's name means this machine: localhost, its own name, or what stands for an address of its own. Not so behind "USER@", nor where
/// the name is unknown: a remote shell may have names of its own.
[[nodiscard]] bool is_this_machine(const std::string& name);

/// The address under which others reach this machine: what `name` stands for, unless that is the loopback; else the first of an interface that is up,
/// IPv4 before IPv6. CROSSDEVICE_SOCKET_IFNAME narrows the interfaces.
///
/// Errors   std::runtime_error: there is only the loopback.
[[nodiscard]] std::string own_address(const std::string& name);

}  // namespace crossdevice::run
