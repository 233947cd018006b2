// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/nccl_all_reduce.h"

#include "ops/detail/nccl_engines.h"

namespace crossdevice {

NcclAllReduce::NcclAllReduce(int num_packs)
    : AllReduceCrossDeviceOps(num_packs),
      engines_(std::make_unique<detail::NcclEngines>("NcclAllReduce")) {}
NcclAllReduce::~NcclAllReduce() = default;

std::size_t NcclAllReduce::first_group(std::size_t /*num_replicas*/) const { return 0; }

void NcclAllReduce::prepare(const PerReplica& value, const CommunicationOptions& /*options*/) {
  engines_->find_or_make(value);
}

NcclReducer* NcclAllReduce::nccl_reducer(const Devices& devices) { return engines_->find(devices); }

}  // namespace crossdevice
