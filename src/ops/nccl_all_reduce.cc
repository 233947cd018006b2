// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/nccl_all_reduce.h"

#include "ops/detail/nccl_fallback.h"

namespace crossdevice {

std::size_t NcclAllReduce::first_group(std::size_t /*num_replicas*/) const { return 0; }

void NcclAllReduce::prepare(const Devices& devices, const CommunicationOptions& /*options*/) {
  if (announced_ == devices) return;
  detail::announce_nccl_fallback("NcclAllReduce", devices);
  announced_ = devices;
}

}  // namespace crossdevice
