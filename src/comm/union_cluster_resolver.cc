// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/union_cluster_resolver.h"

#include <set>

#include "crossdevice/core/error.h"

#include "comm/detail/task_identity.h"

namespace crossdevice {

UnionClusterResolver::UnionClusterResolver(
    std::vector<std::shared_ptr<const ClusterResolver>> resolvers,
    UnionClusterResolverOptions options)
    : resolvers_(std::move(resolvers)), options_(std::move(options)) {
  if (resolvers_.empty()) throw ValueError("a union needs at least one cluster resolver");
  for (const auto& resolver : resolvers_) {
    if (resolver == nullptr) throw ValueError("a union got a null cluster resolver");
  }
}

UnionClusterResolver::~UnionClusterResolver() = default;

ClusterSpec UnionClusterResolver::cluster_spec() const {
  std::vector<ClusterSpec> specs;
  specs.reserve(resolvers_.size());
  std::set<std::string> sparse_jobs;
  for (const auto& resolver : resolvers_) {
    specs.push_back(resolver->cluster_spec());
    for (const std::string& job : specs.back().jobs()) {
      if (!specs.back().is_dense(job)) sparse_jobs.insert(job);
    }
  }
  std::vector<ClusterTask> tasks;
  std::map<std::string, int> sizes;  // of the jobs whose lists are joined
  for (const ClusterSpec& spec : specs) {
    for (ClusterTask& task : spec.tasks()) {
      if (!sparse_jobs.contains(task.job)) task.index = sizes[task.job]++;
      tasks.push_back(std::move(task));
    }
  }
  return ClusterSpec(tasks);
}

std::optional<std::string> UnionClusterResolver::task_type() const {
  return options_.task_type.has_value() ? options_.task_type : first().task_type();
}

std::optional<int> UnionClusterResolver::task_id() const {
  return options_.task_id.has_value() ? options_.task_id : first().task_id();
}

std::optional<std::string> UnionClusterResolver::rpc_layer() const {
  return options_.rpc_layer.has_value() ? options_.rpc_layer : first().rpc_layer();
}

std::string UnionClusterResolver::environment() const { return first().environment(); }

std::map<std::string, int> UnionClusterResolver::num_accelerators(
    const std::optional<std::string>& task_type, std::optional<int> task_id) const {
  return first().num_accelerators(task_type, task_id);
}

std::string UnionClusterResolver::master(const std::optional<std::string>& task_type,
                                         std::optional<int> task_id,
                                         const std::optional<std::string>& rpc_layer) const {
  if (task_type.has_value() && task_id.has_value()) {
    return format_master_url(cluster_spec().task_address(*task_type, *task_id),
                             rpc_layer.has_value() ? rpc_layer : options_.rpc_layer);
  }
  return first().master(std::nullopt, std::nullopt, rpc_layer);
}

WorkerIdentity UnionClusterResolver::identity_implementation() const {
  return detail::identity_of_task(cluster_spec(), task_type(), task_id(), "UnionClusterResolver");
}

}  // namespace crossdevice
