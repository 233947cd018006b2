// SPDX-License-Identifier: Apache-2.0
// In the place of the UCX transport, in a build without it.
#if !defined(CROSSDEVICE_WITH_UCX)

#include "crossdevice/core/error.h"

#include "comm/detail/ucx_kind.h"

namespace crossdevice::detail {

class UcxEnd {};

std::string why_no_ucx() { return "this library was built without UCX"; }
UcxEndPtr open_ucx_end() { throw UnavailableError(why_no_ucx()); }
std::string address_of(const UcxEnd& /*end*/) { return {}; }
std::unique_ptr<TransportKind> make_ucx_kind(std::shared_ptr<Cluster> /*cluster*/,
                                             const std::vector<RankInfo>& /*members*/,
                                             bool /*spins*/, UcxEndPtr /*end*/,
                                             std::vector<std::string> /*addresses*/) {
  throw UnavailableError(why_no_ucx());
}

}  // namespace crossdevice::detail

#endif
