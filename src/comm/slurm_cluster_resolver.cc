// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/slurm_cluster_resolver.h"

#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/detail/host_port.h"
#include "comm/detail/launcher_variables.h"
#include "comm/detail/node_list.h"

namespace crossdevice {
namespace {

using detail::LauncherVariables;

constexpr int kMax = std::numeric_limits<int>::max();

/// Prime, so that none of the first 4096 steps of a job has the port of another one.
constexpr std::uint64_t kPortsBetweenSteps = 61;

/// As Slurm counts jobs, and the steps of one, of which several may run side by side; those that it makes by itself have numbers of 32 bits, jobs of a federation more.
std::uint64_t number_of(const LauncherVariables& variables, const char* name,
                        const std::string& text) {
  const std::optional<std::uint64_t> number = detail::parse_digits(text);
  if (!number.has_value()) throw variables.error(name, "a whole number", text);
  return *number;
}

std::string step_text(const LauncherVariables& variables) {
  return variables.find("SLURM_STEP_ID").value_or("0");
}

std::string chief_address(const LauncherVariables& variables) {
  std::string given = variables.find_chief_address();
  if (!given.empty()) return given;
  const std::string text = variables.require("SLURM_STEP_NODELIST");
  const std::optional<std::vector<std::string>> hosts = detail::expand_node_list(text);
  if (!hosts.has_value()) {
    throw variables.error("SLURM_STEP_NODELIST", "a list of hosts like 'n[1-2],m5'", text);
  }
  const std::uint64_t place =
      number_of(variables, "SLURM_JOB_ID", variables.require("SLURM_JOB_ID")) +
      kPortsBetweenSteps * number_of(variables, "SLURM_STEP_ID", step_text(variables));
  return detail::join_host_port(hosts->size() == 1 ? "127.0.0.1" : hosts->front(),
                                detail::port_of_job(place));
}

/// The variable with the step's number of tasks: older Slurms leave it to SLURM_NTASKS, which the job's batch script has too, where it is no step. A step is what has
/// a list of nodes of its own. Null: none.
const char* size_variable(const LauncherVariables& variables) {
  if (variables.find("SLURM_STEP_NUM_TASKS").has_value()) return "SLURM_STEP_NUM_TASKS";
  const bool is_step = variables.find("SLURM_STEP_NODELIST").has_value();
  return is_step && variables.find("SLURM_NTASKS").has_value() ? "SLURM_NTASKS" : nullptr;
}

/// How many tasks of the step are on this node; nothing where Slurm does not say.
std::optional<int> num_local_tasks(const LauncherVariables& variables) {
  const std::optional<std::string> text = variables.find("SLURM_STEP_TASKS_PER_NODE");
  const std::optional<int> node = variables.find_number("SLURM_NODEID", 0, kMax);
  if (!text.has_value() || !node.has_value()) return std::nullopt;
  const std::optional<std::vector<int>> counts = detail::expand_task_counts(*text);
  if (!counts.has_value()) {
    throw variables.error("SLURM_STEP_TASKS_PER_NODE", "a list of numbers like '4(x2),3'", *text);
  }
  if (static_cast<std::size_t>(*node) >= counts->size()) {
    throw ValueError(
        fmt::format("Slurm: SLURM_NODEID is {}, but SLURM_STEP_TASKS_PER_NODE '{}' has {} nodes",
                    *node, detail::printable(*text), counts->size()));
  }
  return (*counts)[static_cast<std::size_t>(*node)];
}

}  // namespace

SlurmClusterResolver::SlurmClusterResolver(EnvironmentSource source) : source_(std::move(source)) {}

SlurmClusterResolver::~SlurmClusterResolver() = default;

bool SlurmClusterResolver::is_present(const EnvironmentSource& source) {
  const LauncherVariables variables("", source);
  return size_variable(variables) != nullptr && variables.find("SLURM_PROCID").has_value();
}

WorkerIdentity SlurmClusterResolver::identity_implementation() const {
  WorkerIdentity identity;
  identity.launcher = "Slurm";
  const LauncherVariables variables(identity.launcher, source_);
  const char* const size = size_variable(variables);
  const LauncherVariables::Place place =
      variables.require_place("SLURM_PROCID", size != nullptr ? size : "SLURM_STEP_NUM_TASKS");
  identity.rank = place.rank;
  identity.num_workers = place.size;
  identity.task_index = place.rank;
  const std::optional<int> local_rank = variables.find_number("SLURM_LOCALID", 0, kMax);
  const std::optional<int> local_size = num_local_tasks(variables);
  if (local_rank.has_value() && local_size.has_value()) {
    identity.local_rank = local_rank;
    identity.local_num_workers = local_size;
  }
  if (const std::optional<std::string> job = variables.find("SLURM_JOB_ID")) {
    identity.job_id = *job + "." + step_text(variables);
  }
  if (place.size > 1) identity.chief_address = chief_address(variables);
  return identity;
}

}  // namespace crossdevice
