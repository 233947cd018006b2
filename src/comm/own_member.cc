// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/own_member.h"

#include <fmt/format.h>
#include <unistd.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/log.h"

namespace crossdevice::detail {

MemberInfo own_member(const ControlPlaneOptions& options) {
  MemberInfo self{.rank = options.rank,
                  .host = options.host,
                  .host_id = options.host_id,
                  .pid = ::getpid(),
                  .addresses = options.addresses};
  if (self.addresses.size() > kMaxOwnAddresses) {
    const std::size_t num_left_out = self.addresses.size() - kMaxOwnAddresses;
    self.addresses.resize(kMaxOwnAddresses);
    log(LogSeverity::WARNING,
        fmt::format(
            "rank {} has {} addresses; it tells the others the first {}, and leaves {} out: "
            "{} can name the interfaces that count",
            options.rank, options.addresses.size(), kMaxOwnAddresses, num_left_out,
            kSocketInterfaceVariable));
  }
  return self;
}

}  // namespace crossdevice::detail
