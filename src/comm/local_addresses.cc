// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/local_addresses.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include <arpa/inet.h>
#include <asio/ip/address.hpp>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/own_want.h"

#include "comm/detail/pieces.h"
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

/// What the kernel does not say is why: no error where it says all.
std::vector<InterfaceAddress> list_interfaces(std::error_code& why_not) {
  std::vector<InterfaceAddress> found;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) {
    why_not = {errno, std::system_category()};
    return found;
  }
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

}  // namespace

std::vector<InterfaceAddress> interface_addresses() {
  std::error_code ignored;
  return list_interfaces(ignored);
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
  for_each_piece(names, ',', [&](std::string_view name) {
    if (!name.empty() && add_those_of(name)) return;
    std::vector<std::string> possible;
    for (const InterfaceAddress& each : all) {
      if (!each.is_loopback) add_once(possible, each.interface);
    }
    throw ValueError(
        fmt::format("{} is \"{}\": \"{}\" is no interface with an address that others could reach; "
                    "those are: {}",
                    kSocketInterfaceVariable, names, name, join_texts(possible)));
  });
  return selected;
}

std::vector<std::string> select_like_nccl(std::span<const InterfaceAddress> all,
                                          std::string_view names) {
  const bool are_excluded = names.starts_with('^');
  if (are_excluded) names.remove_prefix(1);
  const bool are_whole = names.starts_with('=');
  if (are_whole) names.remove_prefix(1);
  std::vector<std::string> selected;
  for (const InterfaceAddress& each : all) {
    bool is_named = false;
    for_each_piece(names, ',', [&](std::string_view name) {
      name = name.substr(0, name.find(':'));  // NCCL takes a port behind it
      if (name.empty()) return;
      is_named |= are_whole ? each.interface == name : each.interface.starts_with(name);
    });
    if (!each.is_loopback && is_named != are_excluded) add_once(selected, each.address);
  }
  return selected;
}

std::vector<std::string> published_of(std::span<const InterfaceAddress> all,
                                      const EnvironmentSource& source) {
  const auto text_of = [&](const char* name) { return source(name).value_or(""); };
  if (const std::string own = text_of(kSocketInterfaceVariable); !own.empty()) {
    return select_addresses(all, own);
  }
  // Gloo's are whole names.
  for (const auto& [variable, prefix] :
       {std::pair{"NCCL_SOCKET_IFNAME", ""}, std::pair{"GLOO_SOCKET_IFNAME", "="}}) {
    const std::string names = text_of(variable);
    if (names.empty()) continue;
    std::vector<std::string> selected = select_like_nccl(all, prefix + names);
    const std::string what = fmt::format("{} is \"{}\"", variable, names);
    if (!selected.empty()) {
      log_once(what, LogSeverity::INFO,
               fmt::format("{}, and {} is not set: this worker tells the others {}", what,
                           kSocketInterfaceVariable, join_texts(selected)));
      return selected;
    }
    log_once(what, LogSeverity::WARNING,
             fmt::format("{}: no interface of those has an address that others could reach, so "
                         "this worker tells them all that it has; {} narrows them",
                         what, kSocketInterfaceVariable));
    break;
  }
  return select_addresses(all, "");
}

void note_unused_interfaces(std::span<const InterfaceAddress> all,
                            const EnvironmentSource& source) {
  const std::string names = source(kSocketInterfaceVariable).value_or("");
  if (names.empty()) return;
  try {
    (void)select_addresses(all, names);
  } catch (const ValueError& error) {
    log_once(kSocketInterfaceVariable, LogSeverity::WARNING,
             fmt::format("{}; it is not looked at here, since the workers meet on loopback",
                         error.what()));
  }
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
  std::error_code why_not;
  const std::vector<InterfaceAddress> all = list_interfaces(why_not);
  if (is_want(why_not)) {
    throw ResourceExhaustedError("this machine's addresses cannot be listed: " + why_not.message());
  }
  return published_of(all, process_environment());
}

}  // namespace crossdevice::detail
