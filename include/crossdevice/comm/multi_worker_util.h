// SPDX-License-Identifier: Apache-2.0
/// What a task of a cluster is for: chief or not, how many work with it, its number. TF counterpart: multi_worker_util.
///
/// Jobs: "chief" (at most one task), "worker", "ps", and "evaluator" (at most one, which may be missing from the cluster). Chief and
/// workers train together; the evaluator is a cluster of its own.
///
/// Errors of every function   ValueError: what validate_cluster_spec() refuses.
/// Threads                    any.
#pragma once

#include <string>
#include <string_view>

#include "crossdevice/comm/cluster_spec.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// Errors   ValueError: a job or a task_type that is none of the four; task_type has no tasks in the cluster (other than evaluator); more
///          than one chief or evaluator; task_id negative, or not below the number of the job's tasks.
CROSSDEVICE_EXPORT void validate_cluster_spec(const ClusterSpec& cluster_spec,
                                              std::string_view task_type, int task_id);

/// Whether this task writes what is written once: the chief, worker 0 where there is no chief, and the evaluator.
[[nodiscard]] CROSSDEVICE_EXPORT bool is_chief(const ClusterSpec& cluster_spec,
                                               std::string_view task_type, int task_id);

/// The chief and the workers together; 1 for the evaluator.
///
/// Errors   ValueError: task_type "ps".
[[nodiscard]] CROSSDEVICE_EXPORT int worker_count(const ClusterSpec& cluster_spec,
                                                  std::string_view task_type);

/// The rank: 0 for the chief, then the workers; 0 for the evaluator.
///
/// Errors   ValueError: task_type "ps".
[[nodiscard]] CROSSDEVICE_EXPORT int id_in_cluster(const ClusterSpec& cluster_spec,
                                                   std::string_view task_type, int task_id);

/// "/job:chief/replica:0/task:0", or the same of worker 0; "" for the evaluator and for an empty cluster.
[[nodiscard]] CROSSDEVICE_EXPORT std::string collective_leader(const ClusterSpec& cluster_spec,
                                                               std::string_view task_type,
                                                               int task_id);

}  // namespace crossdevice
