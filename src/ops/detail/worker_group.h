// SPDX-License-Identifier: Apache-2.0
/// What workers agree on before they reduce together: equally many devices, one group size, and whether NCCL is for all of them.
#pragma once

#include <memory>

#include "crossdevice/collective/nccl_reduce.h"
#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/device/device.h"
#include "crossdevice/ops/communication_options.h"

namespace crossdevice::detail {

/// What each was made with is wrong nowhere, equal on all, and `group_size` is the devices of all together. Returns whether values are for NCCL, by what all say.
///
/// Ranks    collective where `cluster`, which may be null, has several workers.
/// Errors   ValueError, on all workers: says who has what. Those of the cluster.
[[nodiscard]] bool require_equal_groups(const std::shared_ptr<Cluster>& cluster,
                                        const Devices& devices, int group_size,
                                        const CommunicationOptions& options,
                                        const Deadline& deadline);

/// NCCL's engine among the workers; null, on all of them, where it cannot work on one, which is said once.
///
/// Ranks    collective.
/// Errors   FailedPreconditionError: CROSSDEVICE_STRICT=1 forbids the fall-back. Those of the cluster.
[[nodiscard]] std::unique_ptr<NcclReducer> make_nccl_reducer(
    const std::shared_ptr<Cluster>& cluster, const Devices& devices, const Deadline& deadline);

}  // namespace crossdevice::detail
