// SPDX-License-Identifier: Apache-2.0
/// How this process introduces itself to the others.
#pragma once

#include <unistd.h>

#include "comm/detail/control_message.h"
#include "comm/detail/control_options.h"

namespace crossdevice::detail {

[[nodiscard]] inline MemberInfo own_member(const ControlPlaneOptions& options) {
  return {.rank = options.rank,
          .host = options.host,
          .host_id = options.host_id,
          .pid = ::getpid(),
          .addresses = options.addresses};
}

}  // namespace crossdevice::detail
