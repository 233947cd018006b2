// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/regroup.h"

#include <fmt/format.h>

namespace crossdevice::detail {

void throw_structures_differ(std::size_t size_of_first, std::size_t replica, std::size_t size) {
  throw ValueError(
      fmt::format("the replicas' structures differ: replica 0 has {} elements, replica {} has {}",
                  size_of_first, replica, size));
}

void throw_keys_differ(std::size_t replica) {
  throw ValueError(
      fmt::format("the replicas' structures differ: replica {} lacks a key of replica 0", replica));
}

}  // namespace crossdevice::detail
