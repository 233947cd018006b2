// SPDX-License-Identifier: Apache-2.0
#include "run/own_addresses.h"

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "crossdevice/core/environment.h"

namespace crossdevice::run {
namespace {

/// Nothing where it is neither IPv4 nor IPv6, or reaches no further than its link.
std::vector<OwnAddress> address_of(const sockaddr* address, const std::string& interface) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address == nullptr) return {};
  if (address->sa_family == AF_INET) {
    const in_addr& bytes = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    ::inet_ntop(AF_INET, &bytes, text.data(), text.size());
    constexpr std::uint32_t kLoopback = 127;
    return {{text.data(), ntohl(bytes.s_addr) >> 24U == kLoopback, false, interface}};
  }
  if (address->sa_family == AF_INET6) {
    const in6_addr& bytes = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (IN6_IS_ADDR_LINKLOCAL(&bytes)) return {};
    ::inet_ntop(AF_INET6, &bytes, text.data(), text.size());
    return {{text.data(), IN6_IS_ADDR_LOOPBACK(&bytes) != 0, true, interface}};
  }
  return {};
}

std::vector<OwnAddress> resolve(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &first) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(first, &::freeaddrinfo);
  std::vector<OwnAddress> all;
  for (const addrinfo* each = first; each != nullptr; each = each->ai_next) {
    for (OwnAddress& address : address_of(each->ai_addr, "")) all.push_back(std::move(address));
  }
  return all;
}

bool is_among(const OwnAddress& address, const std::vector<OwnAddress>& own) {
  return std::any_of(own.begin(), own.end(),
                     [&](const OwnAddress& each) { return each.text == address.text; });
}

/// Whether CROSSDEVICE_SOCKET_IFNAME, a list with commas, names the interface or nothing at all.
bool is_wanted(const std::string& interface) {
  const std::string wanted = process_environment()(kSocketInterfaceVariable).value_or("");
  return wanted.empty() || ("," + wanted + ",").find("," + interface + ",") != std::string::npos;
}

}  // namespace

std::vector<OwnAddress> own_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, &::freeifaddrs);
  std::vector<OwnAddress> all;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if ((each->ifa_flags & IFF_UP) == 0) continue;
    for (OwnAddress& address : address_of(each->ifa_addr, each->ifa_name)) {
      all.push_back(std::move(address));
    }
  }
  return all;
}

bool is_this_machine(const std::string& name) {
  if (name == "localhost")
    return true;  // also where nothing resolves it: a system may lack /etc/hosts
  std::array<char, 256> own_name{};
  if (::gethostname(own_name.data(), own_name.size() - 1) == 0 && name == own_name.data()) {
    return true;
  }
  const std::vector<OwnAddress> own = own_addresses();
  const std::vector<OwnAddress> meant = resolve(name);
  return std::any_of(meant.begin(), meant.end(), [&](const OwnAddress& address) {
    return address.is_loopback || is_among(address, own);
  });
}

std::string own_address(const std::string& name) {
  std::vector<OwnAddress> own = own_addresses();
  for (const OwnAddress& address : resolve(name)) {
    if (!address.is_loopback && is_among(address, own)) return address.text;
  }
  std::stable_partition(own.begin(), own.end(), [](const OwnAddress& each) { return !each.is_v6; });
  for (const OwnAddress& address : own) {
    if (!address.is_loopback && is_wanted(address.interface)) return address.text;
  }
  throw std::runtime_error(
      "--hosts: this machine has no address under which other hosts reach it; "
      "CROSSDEVICE_SOCKET_IFNAME may leave out too many interfaces");
}

}  // namespace crossdevice::run
