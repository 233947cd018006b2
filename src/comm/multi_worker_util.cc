// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/multi_worker_util.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "crossdevice/core/error.h"

#include "comm/detail/launcher_variables.h"

namespace crossdevice {
namespace {

constexpr std::array<std::string_view, 4> kJobs{"chief", "worker", "ps", "evaluator"};
constexpr const char* kJobsText = "chief, worker, ps or evaluator";

bool is_known(std::string_view job) {
  return std::find(kJobs.begin(), kJobs.end(), job) != kJobs.end();
}

int task_count(const ClusterSpec& spec, std::string_view job) {
  return spec.has_job(job) ? spec.num_tasks(job) : 0;
}

}  // namespace

void validate_cluster_spec(const ClusterSpec& cluster_spec, std::string_view task_type,
                           int task_id) {
  for (const auto& [job, tasks] : cluster_spec.as_dict()) {
    if (!is_known(job)) {
      throw ValueError(fmt::format("cluster: expected the jobs {}, got '{}'", kJobsText,
                                   detail::printable(job)));
    }
  }
  if (!is_known(task_type)) {
    throw ValueError(
        fmt::format("task_type: expected {}, got '{}'", kJobsText, detail::printable(task_type)));
  }
  const int count = task_count(cluster_spec, task_type);
  if (!cluster_spec.has_job(task_type) && task_type != "evaluator") {
    throw ValueError(fmt::format("task_type '{}' has no tasks in the cluster", task_type));
  }
  for (const std::string_view job : {"chief", "evaluator"}) {
    if (task_count(cluster_spec, job) > 1) {
      throw ValueError(fmt::format("cluster: expected at most one {}, got {}", job,
                                   task_count(cluster_spec, job)));
    }
  }
  if (task_id < 0 || (cluster_spec.has_job(task_type) && task_id >= count)) {
    throw ValueError(
        fmt::format("task_id {} is not among the {} tasks of job '{}'", task_id, count, task_type));
  }
}

bool is_chief(const ClusterSpec& cluster_spec, std::string_view task_type, int task_id) {
  validate_cluster_spec(cluster_spec, task_type, task_id);
  if (task_type == "chief" || task_type == "evaluator") return true;
  return task_type == "worker" && task_id == 0 && task_count(cluster_spec, "chief") == 0;
}

int worker_count(const ClusterSpec& cluster_spec, std::string_view task_type) {
  validate_cluster_spec(cluster_spec, task_type, 0);
  if (task_type == "ps") throw ValueError("task_type 'ps' does not train: it has no worker count");
  if (task_type == "evaluator") return 1;
  return task_count(cluster_spec, "chief") + task_count(cluster_spec, "worker");
}

int id_in_cluster(const ClusterSpec& cluster_spec, std::string_view task_type, int task_id) {
  validate_cluster_spec(cluster_spec, task_type, task_id);
  if (task_type == "ps") throw ValueError("task_type 'ps' does not train: it has no id");
  return task_type == "worker" ? task_count(cluster_spec, "chief") + task_id : task_id;
}

std::string collective_leader(const ClusterSpec& cluster_spec, std::string_view task_type,
                              int task_id) {
  if (cluster_spec.empty()) return "";
  validate_cluster_spec(cluster_spec, task_type, task_id);
  if (task_type == "evaluator") return "";
  return fmt::format("/job:{}/replica:0/task:0",
                     task_count(cluster_spec, "chief") > 0 ? "chief" : "worker");
}

}  // namespace crossdevice
