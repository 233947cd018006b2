// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/chief_address.h"

#include <algorithm>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "crossdevice/core/error.h"

#include "comm/detail/host_name.h"
#include "comm/detail/host_port.h"
#include "comm/detail/local_addresses.h"
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

}  // namespace

std::vector<std::string> agree_on_chief_addresses(const ClusterResolver& resolver, int rank) {
  WireWriter mine;
  mine.text(host_id()).number(std::int32_t{rank == 0 ? free_port() : 0});
  mine.list(rank == 0 ? local_addresses() : std::vector<std::string>(),
            [](WireWriter& list, const std::string& each) { list.text(each); });
  const std::vector<std::string> all = resolver.all_gather(mine.take());
  WireReader chief(all[0]);
  const std::string chief_host_id = chief.text();
  const auto port = static_cast<std::uint16_t>(chief.number<std::int32_t>());
  std::vector<std::string> hosts =
      chief.list<std::string>([](WireReader& list) { return list.text(); });
  const bool is_one_machine = std::all_of(all.begin(), all.end(), [&](const std::string& each) {
    return WireReader(each).text() == chief_host_id;
  });
  if (port == 0) throw UnavailableError("rank 0 has no free port to listen on");
  if (is_one_machine) hosts = {"127.0.0.1"};
  if (hosts.empty()) {
    throw UnavailableError("rank 0 has no address that workers on other machines could reach");
  }
  std::vector<std::string> addresses;
  addresses.reserve(hosts.size());
  for (const std::string& host : hosts) addresses.push_back(join_host_port(host, port));
  return addresses;
}

}  // namespace crossdevice::detail
