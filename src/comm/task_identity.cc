// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/task_identity.h"

#include <fmt/format.h>

#include "crossdevice/comm/multi_worker_util.h"
#include "crossdevice/core/error.h"

namespace crossdevice::detail {

WorkerIdentity identity_of_task(const ClusterSpec& cluster_spec,
                                const std::optional<std::string>& task_type,
                                std::optional<int> task_id, const std::string& launcher) {
  WorkerIdentity identity;
  identity.launcher = launcher;
  identity.job = task_type.value_or(identity.job);
  identity.task_index = task_id.value_or(0);
  if (cluster_spec.empty()) return identity;

  identity.cluster_spec = cluster_spec;
  if (!task_type.has_value() || !task_id.has_value()) {
    throw ValueError(
        fmt::format("{}: the cluster has tasks, but nobody says which one this is: {}", launcher,
                    task_type.has_value() ? "task_id is missing" : "task_type is missing"));
  }
  for (const char* job : {"chief", "worker"}) {
    if (*task_type != "evaluator" && cluster_spec.has_job(job) && !cluster_spec.is_dense(job)) {
      throw ValueError(
          fmt::format("{}: the indices of job '{}' have gaps, but workers that train together need "
                      "the address of every one",
                      launcher, job));
    }
  }
  try {
    identity.num_workers = worker_count(cluster_spec, *task_type);
    identity.rank = id_in_cluster(cluster_spec, *task_type, *task_id);
  } catch (const ValueError& error) {
    throw ValueError(fmt::format("{}: {}", launcher, error.what()));
  }
  if (*task_type == "evaluator") return identity;
  if (identity.num_workers > 1) {
    const bool has_chief = cluster_spec.has_job("chief") && cluster_spec.num_tasks("chief") > 0;
    identity.chief_address = cluster_spec.task_address(has_chief ? "chief" : "worker", 0);
    if (identity.chief_address.empty()) {
      throw ValueError(fmt::format("{}: the address of the first task is empty", launcher));
    }
  }
  return identity;
}

std::string master_of_task(const ClusterSpec& cluster_spec,
                           const std::optional<std::string>& task_type, std::optional<int> task_id,
                           const std::optional<std::string>& rpc_layer) {
  const auto& jobs = cluster_spec.as_dict();
  if (jobs.empty() || (jobs.size() == 1 && jobs.begin()->second.size() <= 1)) return "";
  if (!task_type.has_value() || !task_id.has_value()) {
    throw ValueError(
        "master: expected a task_type and a task_id, as the cluster has several tasks");
  }
  return format_master_url(cluster_spec.task_address(*task_type, *task_id), rpc_layer);
}

}  // namespace crossdevice::detail
