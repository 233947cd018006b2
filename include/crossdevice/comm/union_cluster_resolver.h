// SPDX-License-Identifier: Apache-2.0
/// Several clusters taken as one. TF counterpart: UnionResolver.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "crossdevice/comm/cluster_resolver.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

struct CROSSDEVICE_EXPORT UnionClusterResolverOptions {
  std::optional<std::string> task_type = std::nullopt;
  std::optional<int> task_id = std::nullopt;
  std::optional<std::string> rpc_layer = std::nullopt;
};

/// The jobs of all its resolvers; everything else as the first one says, unless the options or the setters do.
///
/// A job that several have: where all its indices are without gaps, the lists are joined in the order of the resolvers, and so
/// renumbered; where one has gaps, all keep their indices.
///
/// Errors   ValueError from cluster_spec() and what uses it: two resolvers have one index of one job (with gaps).
class CROSSDEVICE_EXPORT UnionClusterResolver : public ClusterResolver {
 public:
  /// Errors   ValueError: no resolver, or one that is null.
  explicit UnionClusterResolver(std::vector<std::shared_ptr<const ClusterResolver>> resolvers,
                                UnionClusterResolverOptions options = {});
  ~UnionClusterResolver() override;

  [[nodiscard]] ClusterSpec cluster_spec() const override;
  [[nodiscard]] std::optional<std::string> task_type() const override;
  [[nodiscard]] std::optional<int> task_id() const override;
  /// The task's address where both task_type and task_id are given; what the first resolver says otherwise.
  [[nodiscard]] std::string master(
      const std::optional<std::string>& task_type = std::nullopt,
      std::optional<int> task_id = std::nullopt,
      const std::optional<std::string>& rpc_layer = std::nullopt) const override;
  [[nodiscard]] std::map<std::string, int> num_accelerators(
      const std::optional<std::string>& task_type = std::nullopt,
      std::optional<int> task_id = std::nullopt) const override;
  [[nodiscard]] std::string environment() const override;
  [[nodiscard]] std::optional<std::string> rpc_layer() const override;

  void set_task_type(std::string task_type) { options_.task_type = std::move(task_type); }
  void set_task_id(int task_id) { options_.task_id = task_id; }
  void set_rpc_layer(std::string rpc_layer) { options_.rpc_layer = std::move(rpc_layer); }

 protected:
  [[nodiscard]] WorkerIdentity identity_implementation() const override;

 private:
  [[nodiscard]] const ClusterResolver& first() const { return *resolvers_.front(); }

  std::vector<std::shared_ptr<const ClusterResolver>> resolvers_;
  UnionClusterResolverOptions options_;
};

}  // namespace crossdevice
