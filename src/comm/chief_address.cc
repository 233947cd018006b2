// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/chief_address.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"

#include "comm/detail/host_name.h"
#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

/// A port nobody listens on at this moment; 0: there is none.
int free_port() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return 0;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  const bool is_bound = ::bind(listener, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
                        ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  ::close(listener);
  return is_bound ? ntohs(address.sin_port) : 0;
}

/// The first IPv4 address of an interface that is up and not loopback; empty: there is none.
std::string outer_address() {
  const std::string wanted = process_environment()(kSocketInterfaceVariable).value_or("");
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return "";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, &::freeifaddrs);
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    if ((each->ifa_flags & IFF_UP) == 0 || (each->ifa_flags & IFF_LOOPBACK) != 0) continue;
    if (!wanted.empty() && wanted != each->ifa_name) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* address = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
    if (::inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size()) != nullptr) {
      return text.data();
    }
  }
  return "";
}

}  // namespace

std::string agree_on_chief_address(const ClusterResolver& resolver, int rank) {
  WireWriter mine;
  mine.text(host_id()).number(std::int32_t{rank == 0 ? free_port() : 0});
  mine.text(rank == 0 ? outer_address() : "");
  const std::vector<std::string> all = resolver.all_gather(mine.take());
  WireReader chief(all[0]);
  const std::string chief_host_id = chief.text();
  const auto port = chief.number<std::int32_t>();
  const std::string outer = chief.text();
  const bool is_one_machine = std::all_of(all.begin(), all.end(), [&](const std::string& each) {
    return WireReader(each).text() == chief_host_id;
  });
  if (port == 0) throw UnavailableError("rank 0 has no free port to listen on");
  if (!is_one_machine && outer.empty()) {
    throw UnavailableError("rank 0 has no address that workers on other machines could reach");
  }
  return fmt::format("{}:{}", is_one_machine ? "127.0.0.1" : outer, port);
}

}  // namespace crossdevice::detail
