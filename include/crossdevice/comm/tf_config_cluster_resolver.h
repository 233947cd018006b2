// SPDX-License-Identifier: Apache-2.0
/// The cluster that the variable TF_CONFIG describes. TF counterpart: TFConfigClusterResolver.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "crossdevice/comm/cluster_resolver.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// What is set here wins over TF_CONFIG.
struct CROSSDEVICE_EXPORT TFConfigOptions {
  std::optional<std::string> task_type = std::nullopt;
  std::optional<int> task_id = std::nullopt;
  std::optional<std::string> rpc_layer = std::nullopt;
  std::optional<std::string> environment = std::nullopt;
  EnvironmentSource source = process_environment();
};

/// TF_CONFIG, as TensorFlow and Kubeflow's TFJob write it:
///   {"cluster": {"chief": ["a:2222"], "worker": ["b:2222", "c:2222"]}, "task": {"type": "worker", "index": 1}}
///
/// A job's tasks are a list, or an object of index and address. Also read: "rpc_layer", "session_master", "environment". Unset, or
/// without "cluster": a single process. Order of ranks: the chief, then the workers by index; the evaluator is a job of its own.
/// Local ranks are not in it, so the workers find them when they meet.
///
/// "sparseCluster" in place of "cluster" has objects of index and address. With every worker in it, it is as good as a cluster; where indices are missing it can be
/// read (cluster_spec(), master()), but has no identity(). Nor has one with a single worker, which is what TFJob with enableDynamicWorker writes for each of several.
///
/// Errors   ValueError from every member: no JSON, a key given twice, another type than the above; says which, and what came.
/// Cost     parses the text at every call, as TF does.
class CROSSDEVICE_EXPORT TFConfigClusterResolver : public ClusterResolver {
 public:
  explicit TFConfigClusterResolver(TFConfigOptions options = {});
  ~TFConfigClusterResolver() override;

  [[nodiscard]] ClusterSpec cluster_spec() const override;
  [[nodiscard]] std::optional<std::string> task_type() const override;
  [[nodiscard]] std::optional<int> task_id() const override;
  /// TF_CONFIG's "session_master" if it has one; "" if at most one job has at most one task.
  [[nodiscard]] std::string master(
      const std::optional<std::string>& task_type = std::nullopt,
      std::optional<int> task_id = std::nullopt,
      const std::optional<std::string>& rpc_layer = std::nullopt) const override;
  [[nodiscard]] std::string environment() const override;
  [[nodiscard]] std::optional<std::string> rpc_layer() const override;

  void set_task_type(std::string task_type) { options_.task_type = std::move(task_type); }
  void set_task_id(int task_id) { options_.task_id = task_id; }
  void set_rpc_layer(std::string rpc_layer) { options_.rpc_layer = std::move(rpc_layer); }

 protected:
  [[nodiscard]] WorkerIdentity identity_implementation() const override;

 private:
  TFConfigOptions options_;
};

}  // namespace crossdevice
