// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/callback_cluster_resolver.h"

#include <utility>

#include "crossdevice/core/error.h"

namespace crossdevice {

CallbackClusterResolver::CallbackClusterResolver(int rank, int num_workers,
                                                 AllGatherBytes all_gather)
    : rank_(rank), num_workers_(num_workers), all_gather_(std::move(all_gather)) {
  if (all_gather_ == nullptr) throw ValueError("CallbackClusterResolver: got no function");
  validate(CallbackClusterResolver::identity_implementation());
}

CallbackClusterResolver::~CallbackClusterResolver() = default;

WorkerIdentity CallbackClusterResolver::identity_implementation() const {
  WorkerIdentity identity;
  identity.rank = rank_;
  identity.num_workers = num_workers_;
  identity.task_index = rank_;
  identity.launcher = "CallbackClusterResolver";
  return identity;
}

void CallbackClusterResolver::all_gather_implementation(std::span<const std::byte> mine,
                                                        std::span<std::byte> all) const {
  all_gather_(mine, all);
}

}  // namespace crossdevice
