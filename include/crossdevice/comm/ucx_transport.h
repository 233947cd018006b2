// SPDX-License-Identifier: Apache-2.0
/// Messages between processes over UCX: InfiniBand and RoCE where there are such devices.
#pragma once

#include <memory>
#include <string>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/transport.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// Why make_ucx_transport() cannot work in this process (built without UCX, no libucp.so.0, too old a one); empty: it can. Loads the library; where that
/// fails, the next call tries again.
///
/// Threads  any.
[[nodiscard]] CROSSDEVICE_EXPORT std::string why_no_ucx();

/// UCX's own TCP port takes anybody's bytes and ends the process at a malformed packet: UCX's tcp transport is left out, unless the environment has a UCX_TLS,
/// which then holds as it is. Only transports that report the loss of a peer are used: RDMA; UCX's shared memory where UCX_POSIX_ERROR_HANDLING or
/// UCX_SYSV_ERROR_HANDLING is "y".
///
/// Addresses travel over the control plane, which is authenticated; what goes over the wire afterwards is neither authenticated nor encrypted: RDMA networks are
/// trusted.
///
/// Ranks    collective over `cluster`.
/// Errors   as Cluster::all_gather_bytes(). UnavailableError, on all members: one has no UCX, or it cannot start, or CROSSDEVICE_TLS=1 is set; says who and why.
///          ResourceExhaustedError, on all members: one lacks file descriptors or memory that UCX takes, which is asked first, also where there is no
///          UCX; can be tried again.
/// Memory   of the caller's nothing is given to UCX: bytes are copied into frames and out of them. 512 KiB per connected peer. UCX has a thread of its own.
/// Time     the destructor waits up to 0.4 s until what was sent has left.
/// Cost     a message is one frame per 7,936 bytes, each with a head of 128 bytes.
[[nodiscard]] CROSSDEVICE_EXPORT std::unique_ptr<Transport> make_ucx_transport(
    std::shared_ptr<Cluster> cluster, const Deadline& deadline = meeting_deadline());

}  // namespace crossdevice
