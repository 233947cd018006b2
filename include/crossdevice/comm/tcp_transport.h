// SPDX-License-Identifier: Apache-2.0
/// Messages between processes, on one machine or many, over TCP.
#pragma once

#include <memory>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/transport.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// Connections are made by Transport::connect(), one per pair, and only between members that prove to each other that they hold the job's secret
/// (CROSSDEVICE_SECRET_FILE; without one everything stays on loopback). What strangers send is bounded in number, size and time. With CROSSDEVICE_TLS=1 all
/// of it is encrypted and authenticated (TLS 1.3), by the thread that makes progress.
///
/// Ranks    collective over `cluster`: everybody listens, and learns where the others do. Members on other machines are reached at any of their
///          addresses; CROSSDEVICE_SOCKET_IFNAME narrows them.
/// Errors   as Cluster::all_gather_bytes(). UnavailableError, on all members: one cannot listen; says who and why.
/// Memory   from and into the caller's, but for the first 16 KiB of a message that comes when nobody is reading. No thread of its own. Encrypted: copies,
///          through 180 KiB for each connection.
/// Cost     a message of up to 256 KiB is one packet train with a head of some 10 bytes, or of some 65 where its operation is another than that of the message
///          before; larger ones have a head every 256 KiB.
[[nodiscard]] CROSSDEVICE_EXPORT std::unique_ptr<Transport> make_tcp_transport(
    std::shared_ptr<Cluster> cluster, const Deadline& deadline = meeting_deadline());

}  // namespace crossdevice
