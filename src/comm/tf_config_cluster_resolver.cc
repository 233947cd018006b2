// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/tf_config_cluster_resolver.h"

#include "crossdevice/core/error.h"

#include "comm/detail/launcher_variables.h"
#include "comm/detail/task_identity.h"
#include "comm/detail/tf_config.h"

namespace crossdevice {
namespace {

constexpr const char* kName = "TF_CONFIG";

detail::TFConfig read(const EnvironmentSource& source) {
  const auto text = detail::LauncherVariables(kName, source).find(kName);
  return text.has_value() ? detail::parse_tf_config(*text) : detail::TFConfig{};
}

/// Whether a task of `job` finds nobody to train with.
bool is_alone(const ClusterSpec& cluster, const std::optional<std::string>& job) {
  if (job == "evaluator") return false;  // as everywhere
  int num_tasks = 0;
  for (const char* each : {"chief", "worker"}) {
    if (cluster.has_job(each)) num_tasks += cluster.num_tasks(each);
  }
  return num_tasks == 1;
}

}  // namespace

TFConfigClusterResolver::TFConfigClusterResolver(TFConfigOptions options)
    : options_(std::move(options)) {}

TFConfigClusterResolver::~TFConfigClusterResolver() = default;

ClusterSpec TFConfigClusterResolver::cluster_spec() const {
  return read(options_.source).cluster_spec;
}

std::optional<std::string> TFConfigClusterResolver::task_type() const {
  return options_.task_type.has_value() ? options_.task_type : read(options_.source).task_type;
}

std::optional<int> TFConfigClusterResolver::task_id() const {
  return options_.task_id.has_value() ? options_.task_id : read(options_.source).task_index;
}

std::optional<std::string> TFConfigClusterResolver::rpc_layer() const {
  return options_.rpc_layer.has_value() ? options_.rpc_layer : read(options_.source).rpc_layer;
}

std::string TFConfigClusterResolver::environment() const {
  if (options_.environment.has_value()) return *options_.environment;
  return read(options_.source).environment.value_or("");
}

std::string TFConfigClusterResolver::master(const std::optional<std::string>& task_type,
                                            std::optional<int> task_id,
                                            const std::optional<std::string>& rpc_layer) const {
  const detail::TFConfig config = read(options_.source);
  if (config.session_master.has_value()) return *config.session_master;
  const auto first = [](const auto& a, const auto& b, const auto& c) {
    return a.has_value() ? a : b.has_value() ? b : c;
  };
  return detail::master_of_task(config.cluster_spec,
                                first(task_type, options_.task_type, config.task_type),
                                first(task_id, options_.task_id, config.task_index),
                                first(rpc_layer, options_.rpc_layer, config.rpc_layer));
}

WorkerIdentity TFConfigClusterResolver::identity_implementation() const {
  const detail::TFConfig config = read(options_.source);
  const std::optional<std::string> job =
      options_.task_type.has_value() ? options_.task_type : config.task_type;
  const std::optional<int> task =
      options_.task_id.has_value() ? options_.task_id : config.task_index;
  if (config.is_sparse_cluster && is_alone(config.cluster_spec, job)) {
    throw ValueError(
        "TF_CONFIG: 'sparseCluster' lists no worker but this one, so there may be others that it "
        "cannot meet: TFJob with enableDynamicWorker tells a worker of no other; without it TFJob "
        "writes 'cluster', with all of them");
  }
  return detail::identity_of_task(config.cluster_spec, job, task, kName);
}

}  // namespace crossdevice
