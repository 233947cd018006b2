// SPDX-License-Identifier: Apache-2.0
/// The text of TF_CONFIG, taken apart.
#pragma once

#include <optional>
#include <string>

#include "crossdevice/comm/cluster_spec.h"

namespace crossdevice::detail {

struct TFConfig {
  ClusterSpec cluster_spec;
  bool is_sparse_cluster = false;  // "sparseCluster": a worker is told of no other worker
  std::optional<std::string> task_type;
  std::optional<int> task_index;
  std::optional<std::string> rpc_layer;
  std::optional<std::string> session_master;
  std::optional<std::string> environment;
};

/// Unknown keys are ignored, null counts as absent.
///
/// Errors   ValueError: no JSON object, a key given twice in one object, a value of another type than TF writes.
[[nodiscard]] TFConfig parse_tf_config(const std::string& text);

}  // namespace crossdevice::detail
