// SPDX-License-Identifier: Apache-2.0
/// The transport between processes that fits this job.
#pragma once

#include <memory>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/transport.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// What CROSSDEVICE_TRANSPORT says, on all members alike: "tcp" or "ucx". Where no member says anything: TCP, as no RDMA hardware has run
/// the other; where all members have UCX and an RDMA device (/sys/class/infiniband), rank 0 logs that. A member that says nothing goes with those that do.
///
/// Ranks    collective over `cluster`.
/// Errors   as make_tcp_transport() and make_ucx_transport(). ValueError, on all members: two members say different things; names them.
[[nodiscard]] CROSSDEVICE_EXPORT std::unique_ptr<Transport> make_message_transport(
    std::shared_ptr<Cluster> cluster, const Deadline& deadline = meeting_deadline());

}  // namespace crossdevice
