// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/local_addresses.h"

#include <algorithm>
#include <array>
#include <memory>
#include <system_error>

#include <arpa/inet.h>
#include <asio/ip/address.hpp>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"

#include "comm/detail/plain_address.h"

namespace crossdevice::detail {
namespace {

/// As digits; empty where others cannot use it.
std::string digits_of(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address.sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  } else if (address.sa_family == AF_INET6) {
    const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    if (IN6_IS_ADDR_LINKLOCAL(&six) != 0) return "";
    bytes = &six;
  }
  if (bytes == nullptr ||
      ::inet_ntop(address.sa_family, bytes, text.data(), text.size()) == nullptr) {
    return "";
  }
  return text.data();
}

void add_once(std::vector<std::string>& texts, const std::string& text) {
  if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
}

std::string join_texts(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& each : texts) joined += (joined.empty() ? "" : ", ") + each;
  return joined.empty() ? "none" : joined;
}

}  // namespace

std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> found;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return found;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, &::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != family) continue;
      if ((each->ifa_flags & IFF_UP) == 0) continue;
      std::string address = digits_of(*each->ifa_addr);
      if (address.empty()) continue;
      found.push_back({each->ifa_name, std::move(address), (each->ifa_flags & IFF_LOOPBACK) != 0});
    }
  }
  return found;
}

std::vector<std::string> select_addresses(std::span<const InterfaceAddress> all,
                                          std::string_view names) {
  std::vector<std::string> selected;
  const auto add_those_of = [&](std::string_view name) {
    bool is_there = false;
    for (const InterfaceAddress& each : all) {
      if (each.is_loopback || (!name.empty() && each.interface != name)) continue;
      add_once(selected, each.address);
      is_there = true;
    }
    return is_there;
  };
  if (names.empty()) {
    add_those_of("");
    return selected;
  }
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    const std::string_view name = names.substr(begin, end - begin);
    begin = end + 1;
    if (!name.empty() && add_those_of(name)) continue;
    std::vector<std::string> possible;
    for (const InterfaceAddress& each : all) {
      if (!each.is_loopback) add_once(possible, each.interface);
    }
    throw ValueError(
        fmt::format("{} is \"{}\": \"{}\" is no interface with an address that others could reach; "
                    "those are: {}",
                    kSocketInterfaceVariable, names, name, join_texts(possible)));
  }
  return selected;
}

bool is_elsewhere(std::span<const InterfaceAddress> all, const std::string& host) {
  std::error_code is_name;
  const asio::ip::address address = plain_address(asio::ip::make_address(host, is_name));
  if (is_name || all.empty() || address.is_unspecified() || address.is_loopback()) return false;
  if (address.is_v6() && address.to_v6().is_link_local()) return false;
  return std::none_of(all.begin(), all.end(), [&](const InterfaceAddress& each) {
    std::error_code ignored;
    return asio::ip::make_address(each.address, ignored) == address;
  });
}

std::vector<std::string> local_addresses() {
  return select_addresses(interface_addresses(),
                          process_environment()(kSocketInterfaceVariable).value_or(""));
}

}  // namespace crossdevice::detail
