// SPDX-License-Identifier: Apache-2.0
/// A cluster that the program itself describes. TF counterpart: SimpleClusterResolver.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "crossdevice/comm/cluster_resolver.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

struct CROSSDEVICE_EXPORT SimpleClusterResolverOptions {
  std::string master{};  ///< what master() gives where no task is named
  std::optional<std::string> task_type = std::nullopt;
  std::optional<int> task_id = std::nullopt;
  std::string environment{};
  std::map<std::string, int> num_accelerators{};  ///< {"GPU", 2}: what num_accelerators() gives
  std::optional<std::string> rpc_layer = std::nullopt;
};

/// Says what it was told. An empty cluster is a single process.
class CROSSDEVICE_EXPORT SimpleClusterResolver : public ClusterResolver {
 public:
  explicit SimpleClusterResolver(ClusterSpec cluster_spec,
                                 SimpleClusterResolverOptions options = {});
  ~SimpleClusterResolver() override;

  [[nodiscard]] ClusterSpec cluster_spec() const override { return cluster_spec_; }
  [[nodiscard]] std::optional<std::string> task_type() const override { return options_.task_type; }
  [[nodiscard]] std::optional<int> task_id() const override { return options_.task_id; }
  /// The task's address where both task_type and task_id are given; what the options say otherwise.
  [[nodiscard]] std::string master(
      const std::optional<std::string>& task_type = std::nullopt,
      std::optional<int> task_id = std::nullopt,
      const std::optional<std::string>& rpc_layer = std::nullopt) const override;
  [[nodiscard]] std::map<std::string, int> num_accelerators(
      const std::optional<std::string>& task_type = std::nullopt,
      std::optional<int> task_id = std::nullopt) const override;
  [[nodiscard]] std::string environment() const override { return options_.environment; }
  [[nodiscard]] std::optional<std::string> rpc_layer() const override { return options_.rpc_layer; }

  void set_task_type(std::string task_type) { options_.task_type = std::move(task_type); }
  void set_task_id(int task_id) { options_.task_id = task_id; }
  void set_rpc_layer(std::string rpc_layer) { options_.rpc_layer = std::move(rpc_layer); }

 protected:
  [[nodiscard]] WorkerIdentity identity_implementation() const override;

 private:
  ClusterSpec cluster_spec_;
  SimpleClusterResolverOptions options_;
};

}  // namespace crossdevice
