// SPDX-License-Identifier: Apache-2.0
/// Where workers on other machines may reach this one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace crossdevice::detail {

/// An address of an interface that is up.
struct InterfaceAddress {
  std::string interface;
  std::string address;  ///< as digits, without brackets
  bool is_loopback = false;
};

/// What the kernel says: IPv4 before IPv6, else in its order. Without link-local IPv6 addresses, which mean nothing elsewhere.
[[nodiscard]] std::vector<InterfaceAddress> interface_addresses();

/// Those that are not loopback, each once, in their order. `names` narrows them to the interfaces it names, separated by commas, in its order; empty:
/// all.
///
/// Errors   ValueError: a name that has no such address; says which names have one.
[[nodiscard]] std::vector<std::string> select_addresses(std::span<const InterfaceAddress> all,
                                                        std::string_view names);

/// Whether `host` is an address, as digits, that none of `all` is: certain, so not of names, nor of addresses that `all` leaves out. Where ports are mapped a
/// machine may be reached at one that it does not have.
[[nodiscard]] bool is_elsewhere(std::span<const InterfaceAddress> all, const std::string& host);

/// Every address that this worker publishes: all that are not loopback, narrowed by CROSSDEVICE_SOCKET_IFNAME. Empty on a machine without a network. Not
/// each of them can be reached from everywhere, and some (of bridges) belong to other machines too: try them in order, and check who answers.
///
/// Errors   ValueError: the variable names an interface without an address.
[[nodiscard]] std::vector<std::string> local_addresses();

}  // namespace crossdevice::detail
