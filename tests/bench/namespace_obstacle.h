// SPDX-License-Identifier: Apache-2.0
/// Whether tests can make network namespaces here.
#pragma once

#include <cstdlib>
#include <string>

namespace crossdevice::run {

/// Whether a shell command succeeds, in a network namespace of its own.
inline bool succeeds_in_namespace(const std::string& command) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): before any thread
  return std::system(("unshare -n sh -c '" + command + "' >/dev/null 2>&1").c_str()) == 0;
}

/// Why namespaces cannot be made here, found without what is tested; empty where they can.
inline std::string namespace_obstacle() {
  if (!succeeds_in_namespace("true")) {
    return "no network namespace can be made here: it needs root, or unshare(1) is missing";
  }
  if (!succeeds_in_namespace("ip link")) return "the program ip is missing";
  if (!succeeds_in_namespace("ip link add br0 type bridge")) return "the kernel has no bridges";
  if (!succeeds_in_namespace("ip link add ve0 type veth peer name ve1")) {
    return "the kernel has no veth devices";
  }
  return "";
}

/// The same of namespaces with IPv6 addresses.
inline std::string ipv6_namespace_obstacle() {
  const std::string why = namespace_obstacle();
  if (!why.empty()) return why;
  if (!succeeds_in_namespace("ip link set lo up && ip addr add fd77::1/64 dev lo nodad")) {
    return "the kernel has no IPv6";
  }
  return "";
}

}  // namespace crossdevice::run
