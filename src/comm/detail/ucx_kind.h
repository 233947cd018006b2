// SPDX-License-Identifier: Apache-2.0
/// The transport over UCX, without a word of UCX's. In a build without UCX everything here says so.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/error.h"

#include "comm/detail/transport_kind.h"

namespace crossdevice::detail {

inline constexpr const char* kNoTlsOverUcx =
    "CROSSDEVICE_TLS=1 encrypts TCP, not UCX: leave one of it and CROSSDEVICE_TRANSPORT=ucx out";

/// A UCX context and its worker, to which others can connect.
class UcxEnd;
using UcxEndPtr =
    std::shared_ptr<UcxEnd>;  // of one owner; shared, because what it is is known elsewhere only

[[nodiscard]] std::string why_no_ucx();
/// Errors   UnavailableError: there is no UCX, or it does not start; says why.
[[nodiscard]] UcxEndPtr open_ucx_end();
[[nodiscard]] std::string address_of(const UcxEnd& end);
/// `addresses`: of all members' ends, by rank.
[[nodiscard]] std::unique_ptr<TransportKind> make_ucx_kind(std::shared_ptr<Cluster> cluster,
                                                           const std::vector<RankInfo>& members,
                                                           bool spins, UcxEndPtr end,
                                                           std::vector<std::string> addresses);

}  // namespace crossdevice::detail
