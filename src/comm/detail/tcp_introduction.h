// SPDX-License-Identifier: Apache-2.0
/// What comes before connections: every member listens, and learns where the others do.
#pragma once

#include <memory>
#include <vector>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/error.h"

#include "comm/detail/tcp_meeting.h"

namespace crossdevice::detail {

struct TcpIntroduction {
  std::unique_ptr<TcpMeeting> meeting;  // that knows of all members
  std::vector<RankInfo> members;        // by rank
};

/// Collective.
///
/// Errors   UnavailableError, on all members: one cannot listen; says who and why. Else as Cluster::all_gather_bytes().
[[nodiscard]] TcpIntroduction introduce_members(Cluster& cluster, const Deadline& deadline);

}  // namespace crossdevice::detail
