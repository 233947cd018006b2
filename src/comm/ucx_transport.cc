// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/ucx_transport.h"

#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/usable_cores.h"
#include "crossdevice/device/shutdown.h"

#include "comm/detail/transport_kind.h"
#include "comm/detail/ucx_kind.h"
#include "comm/detail/wire.h"

namespace crossdevice {

std::string why_no_ucx() { return detail::why_no_ucx(); }

std::unique_ptr<Transport> make_ucx_transport(std::shared_ptr<Cluster> cluster,
                                              const Deadline& deadline) {
  detail::require_not_forked();
  const int num_ranks = cluster->num_workers();
  // Everybody gets an answer, also where something failed: a member that threw alone would leave the others waiting.
  detail::UcxEndPtr mine;
  detail::WireWriter words;
  const auto say = [&words](StatusCode code, const char* text) {
    words.number(static_cast<std::uint8_t>(code)).text(text).text("");
  };
  try {
    if (environment().tls && num_ranks > 1) throw ValueError(detail::kNoTlsOverUcx);
    mine = detail::open_ucx_end();
    const std::string address = detail::address_of(*mine);
    words.number(std::uint8_t{0}).text("").text(address);
  } catch (const ResourceExhaustedError& error) {
    say(StatusCode::RESOURCE_EXHAUSTED, error.what());
  } catch (const std::bad_alloc& error) {
    say(StatusCode::RESOURCE_EXHAUSTED, error.what());
  } catch (const std::exception& error) {
    say(StatusCode::UNAVAILABLE, error.what());
  }
  const std::vector<std::string> all = cluster->all_gather_bytes(words.take(), deadline);
  std::vector<RankInfo> members;
  std::vector<std::string> addresses;
  members.reserve(all.size());
  addresses.reserve(all.size());
  for (int rank = 0; rank < num_ranks; ++rank) {
    members.push_back(cluster->worker(rank));
    auto code = StatusCode::INTERNAL;
    std::string trouble;
    try {
      detail::WireReader theirs(all[static_cast<std::size_t>(rank)]);
      code = static_cast<StatusCode>(theirs.number<std::uint8_t>());
      trouble = theirs.text();
      addresses.push_back(theirs.text());
    } catch (const detail::WireError& error) {
      code = StatusCode::INTERNAL;
      trouble = error.what();
    }
    if (!trouble.empty()) {
      throw_op_error(code, to_string(members.back()) + ": " + trouble,
                     {.operation = {}, .culprits = {members.back()}});
    }
  }
  const auto num_beside = static_cast<std::size_t>(cluster->num_local_workers());
  const bool spins = num_beside <= detail::usable_cores().size();
  return std::make_unique<Transport>(detail::make_ucx_kind(std::move(cluster), members, spins,
                                                           std::move(mine), std::move(addresses)));
}

}  // namespace crossdevice
