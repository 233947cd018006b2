// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/detect_cluster_resolver.h"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/comm/environment_cluster_resolver.h"
#include "crossdevice/comm/mpich_cluster_resolver.h"
#include "crossdevice/comm/open_mpi_cluster_resolver.h"
#include "crossdevice/comm/pmix_cluster_resolver.h"
#include "crossdevice/comm/simple_cluster_resolver.h"
#include "crossdevice/comm/slurm_cluster_resolver.h"
#include "crossdevice/comm/tf_config_cluster_resolver.h"
#include "crossdevice/comm/torchrun_cluster_resolver.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"

#include "comm/detail/launcher_variables.h"

namespace crossdevice {
namespace {

using detail::LauncherVariables;
using Resolver = std::unique_ptr<ClusterResolver>;

template <class Kind>
Resolver make(const EnvironmentSource& source) {
  return std::make_unique<Kind>(source);
}

Resolver make_tf_config(const EnvironmentSource& source) {
  return std::make_unique<TFConfigClusterResolver>(TFConfigOptions{.source = source});
}

bool has_rank(const EnvironmentSource& source) {
  return LauncherVariables("", source).find(kRankVariable).has_value();
}

bool has_tf_cluster(const EnvironmentSource& source) {
  return !TFConfigClusterResolver({.source = source}).cluster_spec().empty();
}

struct Launcher {
  std::string_view word;  // in CROSSDEVICE_LAUNCHER
  bool (*is_present)(const EnvironmentSource& source);
  Resolver (*make)(const EnvironmentSource& source);
};

// In the order of trust: what somebody wrote on purpose, then what launchers set in passing.
constexpr std::array<Launcher, 7> kLaunchers{{
    {"crossdevice", has_rank, make<EnvironmentClusterResolver>},
    {"tf_config", has_tf_cluster, make_tf_config},
    {"torchrun", TorchrunClusterResolver::is_present, make<TorchrunClusterResolver>},
    {"openmpi", OpenMpiClusterResolver::is_present, make<OpenMpiClusterResolver>},
    {"pmix", PmixClusterResolver::is_present, make<PmixClusterResolver>},
    {"mpich", MpichClusterResolver::is_present, make<MpichClusterResolver>},
    {"slurm", SlurmClusterResolver::is_present, make<SlurmClusterResolver>},
}};

Resolver make_single() { return std::make_unique<SimpleClusterResolver>(ClusterSpec()); }

struct Found {
  Resolver resolver;
  WorkerIdentity identity;
};

Found found(Resolver resolver) {
  WorkerIdentity identity = resolver->identity();
  return {std::move(resolver), std::move(identity)};
}

/// The launcher that CROSSDEVICE_LAUNCHER names; nothing where it is unset.
std::optional<Found> named_launcher(const EnvironmentSource& source) {
  const LauncherVariables variables("CROSSDEVICE_*", source);
  const std::optional<std::string> word = variables.find(kLauncherVariable);
  if (!word.has_value()) return std::nullopt;
  if (*word == "none") return found(make_single());
  std::string words;
  for (const Launcher& launcher : kLaunchers) {
    if (*word == launcher.word) return found(launcher.make(source));
    words += fmt::format("{}, ", launcher.word);
  }
  throw variables.error(kLauncherVariable, words + "or none", *word);
}

void require_agreement(const WorkerIdentity& a, const WorkerIdentity& b) {
  if (a.rank == b.rank && a.num_workers == b.num_workers) return;
  throw ValueError(fmt::format(
      "{} says rank {} of {}, but {} says rank {} of {}: expected one launcher, or "
      "several that agree; {} picks one",
      a.launcher, a.rank, a.num_workers, b.launcher, b.rank, b.num_workers, kLauncherVariable));
}

/// Whether Slurm's task is no worker but the daemon by which Open MPI 4's mpirun, which took the nodes from Slurm, has started this worker on another node: it starts
/// one on each by srun, and what they are in that step their children inherit. The daemon of number n is task n - 1; number 0 is mpirun itself, so that under an
/// mpirun that srun has started the two are still seen to disagree.
bool is_daemon_of_mpirun(const EnvironmentSource& source) {
  const LauncherVariables variables("", source);
  const auto number_in = [&](const char* name) {
    return detail::parse_digits(variables.find(name).value_or("x"));
  };
  // "1155596288.2;tcp://192.0.2.2:34811": the job's number, the daemon's, and where it is.
  const auto name_of = [&](const char* variable) {
    const std::string uri = variables.find(variable).value_or("");
    return uri.substr(0, uri.find(';'));
  };
  const std::string daemon = name_of("OMPI_MCA_orte_local_daemon_uri");
  const std::string mpirun = name_of("OMPI_MCA_orte_hnp_uri");
  const std::size_t dot = daemon.find('.');
  if (dot == std::string::npos || daemon.substr(0, dot) != mpirun.substr(0, mpirun.find('.'))) {
    return false;
  }
  const std::optional<std::uint64_t> number =
      detail::parse_digits(std::string_view(daemon).substr(dot + 1));
  const std::optional<std::uint64_t> task = number_in("SLURM_PROCID");
  const std::optional<std::uint64_t> num_tasks = number_in("SLURM_STEP_NUM_TASKS");
  const std::optional<std::uint64_t> num_nodes = number_in("OMPI_MCA_orte_num_nodes");
  return number.has_value() && task.has_value() && *number > 0 && *task == *number - 1 &&
         num_tasks.has_value() && num_nodes.has_value() && *num_tasks <= *num_nodes &&
         variables.find("SLURM_LOCALID") == "0";
}

/// Everybody who is there. PMIx does not know how many workers there are, so it hears that from the first of the others.
std::vector<Found> present_launchers(const EnvironmentSource& source) {
  std::vector<Found> all;
  all.reserve(kLaunchers.size());
  bool has_pmix = false;
  for (const Launcher& launcher : kLaunchers) {
    if (!launcher.is_present(source)) continue;
    if (launcher.word == "slurm" && is_daemon_of_mpirun(source)) continue;
    if (launcher.word == "pmix") {
      has_pmix = true;
    } else {
      all.push_back(found(launcher.make(source)));
    }
  }
  if (!has_pmix) return all;
  if (all.empty()) {
    all.push_back(found(std::make_unique<PmixClusterResolver>(source)));
    return all;
  }
  // identity() refuses a rank that is too large for the others' number of workers, so compare the rank first.
  const WorkerIdentity& first = all.front().identity;
  WorkerIdentity pmix;
  pmix.launcher = "PMIx";
  pmix.rank =
      LauncherVariables(pmix.launcher, source).require_number("PMIX_RANK", 0, detail::kMaxWorkers);
  pmix.num_workers = first.num_workers;
  require_agreement(first, pmix);
  return all;
}

/// CROSSDEVICE_NUM_WORKERS on its own: a check of what the launchers say.
void require_given_size(const EnvironmentSource& source, const std::vector<Found>& all) {
  const LauncherVariables variables("CROSSDEVICE_*", source);
  const std::optional<int> size =
      variables.find_number(kNumWorkersVariable, 1, detail::kMaxWorkers);
  if (!size.has_value()) return;
  if (all.empty()) {
    throw ValueError(fmt::format("{} is '{}', but {} is not set, and no launcher has told a rank",
                                 kNumWorkersVariable, *size, kRankVariable));
  }
  const WorkerIdentity& first = all.front().identity;
  if (first.num_workers != *size) {
    throw ValueError(fmt::format("{} is '{}', but {} says that there are {} workers",
                                 kNumWorkersVariable, *size, first.launcher, first.num_workers));
  }
}

/// What looks like a launcher of several workers, though none of ours has been here: then each of them works alone, and nothing fails.
void warn_of_strays(const EnvironmentSource& source) {
  const LauncherVariables variables("", source);
  std::string strays;
  for (const auto& [rank_name, size_name] :
       {std::pair{"HOROVOD_RANK", "HOROVOD_SIZE"}, std::pair{"RANK", "WORLD_SIZE"}}) {
    const std::optional<std::string> rank = variables.find(rank_name);
    const std::optional<std::string> size = variables.find(size_name);
    if (size == "1") continue;
    for (const auto& [name, text] : {std::pair{rank_name, rank}, std::pair{size_name, size}}) {
      if (!text.has_value()) continue;
      strays +=
          fmt::format("{}{} is '{}'", strays.empty() ? "" : ", ", name, detail::printable(*text));
    }
  }
  if (strays.empty()) return;
  log_once("stray variables of launchers", LogSeverity::WARNING,
           fmt::format("{}, but no launcher that is known here has told a rank and a number of "
                       "workers: this worker works alone. {}, {} and {} make workers of one job; "
                       "{}=none says that it is alone",
                       strays, kRankVariable, kNumWorkersVariable, kChiefAddressVariable,
                       kLauncherVariable));
}

Found detect(const EnvironmentSource& source) {
  if (std::optional<Found> named = named_launcher(source)) return *std::move(named);
  std::vector<Found> all = present_launchers(source);
  require_given_size(source, all);
  if (all.empty()) {
    warn_of_strays(source);
    return found(make_single());
  }
  for (const Found& other : all) require_agreement(all.front().identity, other.identity);
  for (Found& launcher : all) {
    if (!launcher.identity.chief_address.empty()) return std::move(launcher);
  }
  return std::move(all.front());
}

}  // namespace

std::unique_ptr<ClusterResolver> detect_cluster_resolver(const EnvironmentSource& source) {
  Found chosen = detect(source);
  log_once("detect_cluster_resolver", LogSeverity::INFO,
           fmt::format("this worker is {}", to_string(chosen.identity)));
  return std::move(chosen.resolver);
}

}  // namespace crossdevice
