// SPDX-License-Identifier: Apache-2.0
#include "collective/team_ops.h"

#include <memory>
#include <utility>

#include <fmt/core.h>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/default_devices.h"
#include "crossdevice/core/error.h"
#include "crossdevice/ops/collective_all_reduce.h"

#include "support/program.h"

namespace crossdevice::bench {

namespace {

TeamOps alone(const Arguments& arguments) {
  programs::NamedOps ops = programs::make_ops(
      arguments.ops, arguments.devices,
      {.num_packs = arguments.num_packs, .all_reduce_spec = arguments.all_reduce_spec});
  std::string algorithm = programs::algorithm_name(
      ops.name, arguments.devices, arguments.communication, arguments.all_reduce_spec);
  return {.ops = std::move(ops),
          .algorithm = std::move(algorithm),
          .team = Team(),
          .explain = {},
          .explain_packs = {},
          .raw_nccl = nullptr};
}

std::shared_ptr<detail::NcclClique> raw_nccl_among(const std::shared_ptr<Cluster>& cluster,
                                                   const Devices& devices) {
  if (devices.all_host()) return nullptr;
  try {
    return detail::NcclClique::among(cluster, devices);
  } catch (const UnavailableError&) {
    return nullptr;  // the ops have said why, once
  }
}

}  // namespace

std::shared_ptr<Cluster> meet_workers(Arguments& arguments) {
  std::shared_ptr<Cluster> cluster = Cluster::join();
  if (!arguments.takes_own_gpus) return cluster;
  arguments.devices = default_devices(*cluster);
  if (arguments.devices.all_host()) {
    throw programs::ArgumentError(
        fmt::format("--devices GPU: rank {} of {} gets no GPU of this machine", cluster->rank(),
                    cluster->num_workers()));
  }
  return cluster;
}

TeamOps make_team_ops(const Arguments& arguments, const std::shared_ptr<Cluster>& cluster) {
  if (cluster == nullptr) return alone(arguments);
  const int group_size = cluster->num_workers() * static_cast<int>(arguments.devices.size());
  auto ops = std::make_shared<CollectiveAllReduce>(arguments.devices, group_size,
                                                   arguments.communication, cluster);
  Team team(cluster, ops, arguments.devices);
  const int num_namespaces = arguments.workers.num_namespaces;
  if (num_namespaces > 0 && team.num_hosts() != static_cast<std::size_t>(num_namespaces)) {
    throw programs::ArgumentError(
        fmt::format("--netns {}: a launcher has started the workers on {} hosts; without it "
                    "crossdevice-bench makes the namespaces itself",
                    num_namespaces, team.num_hosts()));
  }
  const bool is_direct = team.num_hosts() == 1 && arguments.devices.all_host();
  const std::string algorithm = is_direct ? "direct" : "auto";
  auto explain = [ops](std::size_t size_bytes) { return ops->explain(size_bytes); };
  return {.ops = {.ops = ops, .name = "collective_all_reduce"},
          .algorithm = algorithm,
          .team = std::move(team),
          .explain = std::move(explain),
          .explain_packs = [ops] { return ops->explain_packs(); },
          .raw_nccl = arguments.explain ? nullptr : raw_nccl_among(cluster, arguments.devices)};
}

}  // namespace crossdevice::bench
