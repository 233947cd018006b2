// SPDX-License-Identifier: Apache-2.0
/// A task's identity where the whole cluster is written down.
#pragma once

#include <optional>
#include <string>

#include "crossdevice/comm/cluster_resolver.h"

namespace crossdevice::detail {

/// The rank and the chief's address of one task. An empty cluster is a single process; the evaluator is one too.
///
/// Errors   ValueError, beginning with `launcher`: there are tasks, but task_type or task_id is missing; validate_cluster_spec() refuses
///          them; task_type is "ps"; the workers' indices have gaps, so that nobody knows who is missing.
[[nodiscard]] WorkerIdentity identity_of_task(const ClusterSpec& cluster_spec,
                                              const std::optional<std::string>& task_type,
                                              std::optional<int> task_id,
                                              const std::string& launcher);

/// TF's rule for the address of a task: "" where at most one job has at most one task, whatever was asked for.
///
/// Errors   ValueError: task_type or task_id is missing, no such task.
[[nodiscard]] std::string master_of_task(const ClusterSpec& cluster_spec,
                                         const std::optional<std::string>& task_type,
                                         std::optional<int> task_id,
                                         const std::optional<std::string>& rpc_layer);

}  // namespace crossdevice::detail
