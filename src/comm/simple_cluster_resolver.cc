// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/simple_cluster_resolver.h"

#include "comm/detail/task_identity.h"

namespace crossdevice {

SimpleClusterResolver::SimpleClusterResolver(ClusterSpec cluster_spec,
                                             SimpleClusterResolverOptions options)
    : cluster_spec_(std::move(cluster_spec)), options_(std::move(options)) {}

SimpleClusterResolver::~SimpleClusterResolver() = default;

std::string SimpleClusterResolver::master(const std::optional<std::string>& task_type,
                                          std::optional<int> task_id,
                                          const std::optional<std::string>& rpc_layer) const {
  const bool is_named = task_type.has_value() && task_id.has_value();
  return format_master_url(
      is_named ? cluster_spec_.task_address(*task_type, *task_id) : options_.master,
      rpc_layer.has_value() ? rpc_layer : options_.rpc_layer);
}

std::map<std::string, int> SimpleClusterResolver::num_accelerators(
    const std::optional<std::string>& /*task_type*/, std::optional<int> /*task_id*/) const {
  return options_.num_accelerators;
}

WorkerIdentity SimpleClusterResolver::identity_implementation() const {
  return detail::identity_of_task(
      cluster_spec_, options_.task_type, options_.task_id,
      cluster_spec_.empty() ? "single process" : "SimpleClusterResolver");
}

}  // namespace crossdevice
