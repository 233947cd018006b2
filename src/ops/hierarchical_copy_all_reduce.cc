// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"

#include "crossdevice/collective/hierarchical_copy.h"
#include "crossdevice/core/log.h"

namespace crossdevice {

HierarchicalCopyAllReduce::HierarchicalCopyAllReduce(int num_packs)
    : AllReduceCrossDeviceOps(num_packs) {
  log_once("HierarchicalCopyAllReduce", LogSeverity::INFO,
           "HierarchicalCopyAllReduce: hierarchical_copy, as the program asks by its name; direct "
           "where destinations are other devices or deterministic is set");
}

std::size_t HierarchicalCopyAllReduce::first_group(std::size_t num_replicas) const {
  return hierarchical_first_half(num_replicas);
}

void HierarchicalCopyAllReduce::prepare(const PerReplica& /*value*/,
                                        const CommunicationOptions& /*options*/) {}

}  // namespace crossdevice
