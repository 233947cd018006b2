// SPDX-License-Identifier: Apache-2.0
/// Where workers on other machines may reach this one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/core/environment.h"

namespace crossdevice::detail {

/// An address of an interface that is up.
struct InterfaceAddress {
  std::string interface;
  std::string address;  ///< as digits, without brackets
  bool is_loopback = false;
};

/// What the kernel says: IPv4 before IPv6, else in its order. Without link-local IPv6 addresses, which mean nothing elsewhere. Nothing where it says nothing, as
/// without a descriptor to ask it by.
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

/// The same as NCCL_SOCKET_IFNAME narrows them, in their order: "eth,ib" are beginnings of names, "=eth0" is a name, "^docker" are all others, "^=docker0" too.
[[nodiscard]] std::vector<std::string> select_like_nccl(std::span<const InterfaceAddress> all,
                                                        std::string_view names);

/// What `source` leaves of `all`: narrowed by CROSSDEVICE_SOCKET_IFNAME, or where that is not set by NCCL_SOCKET_IFNAME, or else by GLOO_SOCKET_IFNAME. If one of other
/// people's leaves nothing, it is as if it were not set, which is said once.
///
/// Errors   ValueError: as select_addresses().
[[nodiscard]] std::vector<std::string> published_of(std::span<const InterfaceAddress> all,
                                                    const EnvironmentSource& source);

/// Where rank 0 listens on loopback nobody publishes an address: says it once if CROSSDEVICE_SOCKET_IFNAME names an interface that is none.
void note_unused_interfaces(std::span<const InterfaceAddress> all, const EnvironmentSource& source);

/// Every address that this worker publishes: all that are not loopback, narrowed as published_of() says. Empty on a machine without a network. Not
/// each of them can be reached from everywhere, and some (of bridges) belong to other machines too: try them in order, and check who answers.
///
/// Errors   ValueError: the variable names an interface without an address. ResourceExhaustedError: this process has no descriptor to ask the kernel by.
[[nodiscard]] std::vector<std::string> local_addresses();

}  // namespace crossdevice::detail
