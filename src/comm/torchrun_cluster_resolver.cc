// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/torchrun_cluster_resolver.h"

#include <utility>

#include <fmt/format.h>

#include "crossdevice/core/log.h"

#include "comm/detail/host_port.h"
#include "comm/detail/launcher_variables.h"

namespace crossdevice {
namespace {

constexpr int kMaxPort = 65535;

using detail::LauncherVariables;

/// A pod of a Kubeflow job in which no torchrun runs, which would have set LOCAL_RANK.
bool is_pod(const EnvironmentSource& source) {
  const LauncherVariables variables("", source);
  return variables.find("PET_NODE_RANK").has_value() && variables.find("PET_NNODES").has_value() &&
         !variables.find("LOCAL_RANK").has_value();
}

bool is_torchrun(const EnvironmentSource& source) {
  const LauncherVariables variables("", source);
  return variables.find("RANK").has_value() && variables.find("WORLD_SIZE").has_value();
}

/// A number of processes per pod is for torchrun, which has started none here.
void note_processes(const LauncherVariables& variables) {
  const std::optional<std::string> count = variables.find("PET_NPROC_PER_NODE");
  if (!count.has_value() || *count == "1") return;
  // Which is as it should be, where its container has no torchrun.
  log_once("PET_NPROC_PER_NODE=" + *count, LogSeverity::INFO,
           fmt::format("PET_NPROC_PER_NODE is '{}', but no torchrun has started this process: the "
                       "pod is one worker, with all of its devices",
                       detail::printable(*count)));
}

WorkerIdentity pod_identity(const EnvironmentSource& source) {
  WorkerIdentity identity;
  identity.launcher = "torchrun (PET_*)";
  const LauncherVariables variables(identity.launcher, source);
  const std::string nodes = variables.require("PET_NNODES");
  // "2:2" is 2; "1:4" is a range, of which nobody knows how many will come.
  const std::size_t colon = nodes.find(':');
  std::string_view low = nodes;
  if (colon != std::string::npos) {
    low = std::string_view(nodes).substr(0, colon);
    if (low != std::string_view(nodes).substr(colon + 1)) {
      throw variables.error("PET_NNODES", "one number of nodes, not a range", nodes);
    }
  }
  const std::optional<std::uint64_t> size = detail::parse_digits(low);
  if (!size.has_value() || *size < 1 || *size > detail::kMaxWorkers) {
    throw variables.error("PET_NNODES",
                          fmt::format("a whole number from 1 to {}", detail::kMaxWorkers), nodes);
  }
  identity.num_workers = static_cast<int>(*size);
  identity.rank = variables.require_number("PET_NODE_RANK", 0, identity.num_workers - 1);
  identity.local_rank = 0;
  identity.local_num_workers = 1;
  note_processes(variables);
  if (identity.num_workers > 1) {
    identity.chief_address = variables.find_chief_address();
    if (identity.chief_address.empty()) {
      identity.chief_address = detail::join_host_port(
          variables.require("PET_MASTER_ADDR"),
          static_cast<std::uint16_t>(variables.require_number("PET_MASTER_PORT", 1, kMaxPort)));
    }
  }
  return identity;
}

WorkerIdentity torchrun_identity(const EnvironmentSource& source) {
  WorkerIdentity identity;
  identity.launcher = "torchrun";
  const LauncherVariables variables(identity.launcher, source);
  const LauncherVariables::Place place = variables.require_place("RANK", "WORLD_SIZE");
  identity.rank = place.rank;
  identity.num_workers = place.size;
  if (const auto local = variables.find_place("LOCAL_RANK", "LOCAL_WORLD_SIZE")) {
    identity.local_rank = local->rank;
    identity.local_num_workers = local->size;
  }
  identity.job_id = variables.find("TORCHELASTIC_RUN_ID").value_or("");
  // What every job is called that was given no name.
  if (identity.job_id == "none") identity.job_id.clear();
  if (place.size > 1) {
    identity.chief_address = variables.find_chief_address();
    if (identity.chief_address.empty()) {
      const std::string host = variables.require("MASTER_ADDR");
      const int port = variables.require_number("MASTER_PORT", 1, kMaxPort);
      // All of torchrun's workers are on one machine: nobody else has to find rank 0, and strangers cannot.
      const bool is_one_host = identity.local_num_workers == identity.num_workers;
      const bool is_taken = variables.find("TORCHELASTIC_USE_AGENT_STORE") == "True";
      identity.chief_address = detail::join_host_port(
          is_one_host ? "127.0.0.1" : host,
          is_taken ? detail::port_of_job(static_cast<std::uint64_t>(port) + 1)
                   : static_cast<std::uint16_t>(port));
    }
  }
  return identity;
}

}  // namespace

TorchrunClusterResolver::TorchrunClusterResolver(EnvironmentSource source)
    : source_(std::move(source)) {}

TorchrunClusterResolver::~TorchrunClusterResolver() = default;

bool TorchrunClusterResolver::is_present(const EnvironmentSource& source) {
  return is_pod(source) || is_torchrun(source);
}

WorkerIdentity TorchrunClusterResolver::identity_implementation() const {
  WorkerIdentity identity = is_pod(source_) ? pod_identity(source_) : torchrun_identity(source_);
  identity.task_index = identity.rank;
  return identity;
}

}  // namespace crossdevice
