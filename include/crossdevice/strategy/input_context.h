// SPDX-License-Identifier: Apache-2.0
/// Which share of the input a worker reads. TF counterpart: tf.distribute.InputContext.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "crossdevice/core/export.h"
#include "crossdevice/core/int64.h"

namespace crossdevice {

/// One input pipeline per worker.
struct CROSSDEVICE_EXPORT InputContext {
  std::size_t num_input_pipelines = 1;
  std::size_t input_pipeline_id = 0;
  std::size_t num_replicas_in_sync = 1;

  /// Errors   ValueError: the replicas cannot have equal shares of `global_batch_size`, it is negative, or there are no replicas.
  [[nodiscard]] std::int64_t get_per_replica_batch_size(Int64 global_batch_size) const;
  /// "InputContext(input pipeline id 1, total: 3)".
  [[nodiscard]] std::string to_string() const;
};

}  // namespace crossdevice
