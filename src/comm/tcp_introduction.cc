// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/tcp_introduction.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"

#include "comm/detail/cluster_state.h"
#include "comm/detail/local_addresses.h"
#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

/// What `member` has said. Errors   InternalError: it is no message.
template <class Read>
auto read(const RankInfo& member, Read read_words) {
  try {
    return read_words();
  } catch (const WireError& error) {
    throw InternalError(to_string(member) + ": " + error.what(),
                        {.operation = {}, .culprits = {member}});
  }
}

}  // namespace

TcpIntroduction introduce_members(Cluster& cluster, const Deadline& deadline) {
  const int num_ranks = cluster.num_workers();
  const std::vector<int> beside = cluster.ranks_beside(cluster.rank());
  TcpMeetingOptions options;
  options.rank = cluster.rank();
  options.num_ranks = num_ranks;
  options.cluster_id = cluster.id();

  // Everybody gets an answer, also where something failed: a member that threw alone would leave the others waiting.
  TcpIntroduction introduction;
  WireWriter mine;
  try {
    options.secret = ClusterInside::secret(cluster);
    if (environment().tls && num_ranks > 1) options.tls = TlsKey::make(options.secret);
    options.is_loopback_only =
        options.secret.empty() || static_cast<int>(beside.size()) == num_ranks;
    if (!options.is_loopback_only) options.addresses = local_addresses();
    introduction.meeting = std::make_unique<TcpMeeting>(std::move(options));
    mine.text("").text(introduction.meeting->announcement());
  } catch (const std::exception& error) {
    mine.text(error.what()).text("");
  }
  const std::vector<std::string> all = cluster.all_gather_bytes(mine.take(), deadline);
  introduction.members.reserve(all.size());
  std::vector<std::string> announcements;
  announcements.reserve(all.size());
  for (int rank = 0; rank < num_ranks; ++rank) {
    introduction.members.push_back(cluster.worker(rank));
    const RankInfo& member = introduction.members.back();
    const std::string trouble = read(member, [&] {
      WireReader theirs(all[static_cast<std::size_t>(rank)]);
      std::string first = theirs.text();
      announcements.push_back(theirs.text());
      return first;
    });
    if (!trouble.empty()) {
      throw UnavailableError(to_string(member) + ": " + trouble,
                             {.operation = {}, .culprits = {member}});
    }
  }
  // Now that nobody is in trouble, there is a meeting here too.
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    const bool is_beside = std::find(beside.begin(), beside.end(), rank) != beside.end();
    read(introduction.members[index],
         [&] { introduction.meeting->learn(rank, announcements[index], is_beside); });
  }
  return introduction;
}

}  // namespace crossdevice::detail
