// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/open_mpi_cluster_resolver.h"

#include <algorithm>
#include <utility>

#include "comm/detail/host_port.h"
#include "comm/detail/launcher_variables.h"

namespace crossdevice {
namespace {

constexpr const char* kUriVariable = "OMPI_MCA_orte_hnp_uri";
constexpr std::uint64_t kJobStep = 4096;  // ORTE keeps the low bits of a job's number for its parts

using detail::LauncherVariables;

/// "283705344.0;tcp://192.0.2.2,198.51.100.7:37563;tcp6://[fe80::1]:37563": the job's number and the first address.
struct Uri {
  std::uint64_t job = 0;
  std::string host;
};

std::optional<Uri> parse_uri(std::string_view text) {
  const std::size_t dot = text.find('.');
  const std::size_t semicolon = text.find(';');
  if (dot == std::string_view::npos || semicolon == std::string_view::npos || dot > semicolon) {
    return std::nullopt;
  }
  const std::optional<std::uint64_t> job = detail::parse_digits(text.substr(0, dot));
  if (!job.has_value()) return std::nullopt;
  std::string_view contact = text.substr(semicolon + 1);
  std::string_view ends = ",:";
  if (contact.starts_with("tcp://")) {
    contact.remove_prefix(6);
  } else if (contact.starts_with("tcp6://[")) {
    contact.remove_prefix(8);
    ends = ",]";
  } else {
    return std::nullopt;
  }
  const std::size_t end = contact.find_first_of(ends);
  if (end == 0 || end == std::string_view::npos) return std::nullopt;
  return Uri{*job, std::string(contact.substr(0, end))};
}

/// FNV-1a: the same number on every worker from a name that only this job has.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 14695981039346656037U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash ^ (hash >> 32U);
}

std::string chief_address(const LauncherVariables& variables, bool is_one_host) {
  std::string given = variables.find_chief_address();
  if (!given.empty()) return given;
  if (const std::optional<std::string> text = variables.find(kUriVariable)) {
    const std::optional<Uri> uri = parse_uri(*text);
    if (!uri.has_value()) {
      throw variables.error(kUriVariable, "a URI like '283705344.0;tcp://192.0.2.2:37563'", *text);
    }
    return detail::join_host_port(is_one_host ? "127.0.0.1" : uri->host,
                                  detail::port_of_job(uri->job / kJobStep));
  }
  const std::optional<std::string> job = variables.find("PMIX_NAMESPACE");
  if (!is_one_host || !job.has_value()) return "";
  return detail::join_host_port("127.0.0.1", detail::port_of_job(hash_of(*job)));
}

}  // namespace

OpenMpiClusterResolver::OpenMpiClusterResolver(EnvironmentSource source)
    : source_(std::move(source)) {}

OpenMpiClusterResolver::~OpenMpiClusterResolver() = default;

bool OpenMpiClusterResolver::is_present(const EnvironmentSource& source) {
  return LauncherVariables("", source).find("OMPI_COMM_WORLD_RANK").has_value();
}

WorkerIdentity OpenMpiClusterResolver::identity_implementation() const {
  WorkerIdentity identity;
  identity.launcher = "Open MPI";
  const LauncherVariables variables(identity.launcher, source_);
  const LauncherVariables::Place place =
      variables.require_place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  identity.rank = place.rank;
  identity.num_workers = place.size;
  identity.task_index = place.rank;
  if (const auto local =
          variables.find_place("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")) {
    identity.local_rank = local->rank;
    identity.local_num_workers = local->size;
  }
  if (place.size > 1) {
    identity.chief_address = chief_address(variables, identity.local_num_workers == place.size);
  }
  return identity;
}

}  // namespace crossdevice
