// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/chief_address.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>

#include <fmt/format.h>

#include "crossdevice/comm/reserved_port.h"
#include "crossdevice/core/error.h"

#include "comm/detail/host_name.h"
#include "comm/detail/host_port.h"
#include "comm/detail/local_addresses.h"
#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

struct Told {
  std::uint16_t port = 0;
  std::vector<std::string> hosts;
  bool is_one_machine = false;
};

/// What each has said, rank 0 first. The caller's function has carried it, which may do as it likes.
Told read_words(const std::vector<std::string>& all) {
  try {
    WireReader chief(all[0]);
    const std::string chief_host_id = chief.text();
    Told told;
    told.port = static_cast<std::uint16_t>(chief.number<std::int32_t>());
    told.hosts = chief.list<std::string>([](WireReader& list) { return list.text(); });
    told.is_one_machine = std::all_of(all.begin(), all.end(), [&](const std::string& each) {
      return WireReader(each).text() == chief_host_id;
    });
    return told;
  } catch (const WireError& error) {
    throw ValueError(
        fmt::format("all_gather: what the workers have said where they are cannot be "
                    "read: {}; the caller's function must return everybody's bytes",
                    error.what()));
  }
}

}  // namespace

AgreedChief agree_on_chief(const ClusterResolver& resolver, int rank) {
  // Whatever is wrong here is thrown later: the others wait for what this worker says.
  std::optional<ReservedPort> held;
  std::string failure;
  if (rank == 0) {
    try {
      held.emplace(ReservedPort::Reach::ALL_INTERFACES);
    } catch (const UnavailableError& error) {
      failure = error.what();
    }
  }
  std::string own_host_id;
  std::exception_ptr refused;
  try {
    own_host_id = host_id();
  } catch (const ValueError&) {
    refused = std::current_exception();
  }
  std::vector<std::string> own_addresses;
  if (held) {
    try {
      own_addresses = local_addresses();
    } catch (const ResourceExhaustedError& error) {
      failure = error.what();
      held.reset();
    }
  }
  WireWriter mine;
  mine.text(own_host_id).number(std::int32_t{held ? held->number() : 0});
  mine.list(own_addresses, [](WireWriter& list, const std::string& each) { list.text(each); });
  const std::vector<std::string> all = resolver.all_gather(mine.take());
  if (refused) std::rethrow_exception(refused);
  auto [port, hosts, is_one_machine] = read_words(all);
  if (port == 0) {
    throw UnavailableError(failure.empty() ? "rank 0 has no free port to listen on" : failure);
  }
  if (is_one_machine) hosts = {"127.0.0.1"};
  if (hosts.empty()) {
    throw UnavailableError("rank 0 has no address that workers on other machines could reach");
  }
  AgreedChief chief_of_all;
  chief_of_all.addresses.reserve(hosts.size());
  for (const std::string& host : hosts) {
    chief_of_all.addresses.push_back(join_host_port(host, port));
  }
  if (rank == 0) {
    chief_of_all.listener = ListeningSocket::open(hosts[0], port, "the chief (rank 0)");
  }
  return chief_of_all;
}

}  // namespace crossdevice::detail
