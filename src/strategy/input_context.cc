// SPDX-License-Identifier: Apache-2.0
// Shares of a batch.
#include "crossdevice/strategy/input_context.h"

#include "crossdevice/core/error.h"

namespace crossdevice {

std::int64_t InputContext::get_per_replica_batch_size(Int64 global_batch_size) const {
  if (num_replicas_in_sync == 0) {
    throw ValueError("get_per_replica_batch_size: num_replicas_in_sync must be 1 or more, not 0");
  }
  const auto replicas = static_cast<std::int64_t>(num_replicas_in_sync);
  const std::int64_t size = global_batch_size.value();
  if (size < 0 || size % replicas != 0) {
    throw ValueError("global_batch_size " + std::to_string(size) +
                     " is not divisible by num_replicas_in_sync " + std::to_string(replicas));
  }
  return size / replicas;
}

std::string InputContext::to_string() const {
  return "InputContext(input pipeline id " + std::to_string(input_pipeline_id) +
         ", total: " + std::to_string(num_input_pipelines) + ")";
}

}  // namespace crossdevice
