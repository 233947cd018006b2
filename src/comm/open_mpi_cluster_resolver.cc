// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/open_mpi_cluster_resolver.h"

#include <string_view>
#include <utility>
#include <vector>

#include "comm/detail/host_port.h"
#include "comm/detail/launcher_variables.h"
#include "comm/detail/pieces.h"

namespace crossdevice {
namespace {

constexpr const char* kUriVariable = "OMPI_MCA_orte_hnp_uri";
constexpr std::uint64_t kJobStep = 4096;  // ORTE keeps the low bits of a job's number for its parts

using detail::LauncherVariables;

/// "283705344.0;tcp://192.0.2.2,198.51.100.7:37563;tcp6://[fd00::2,fd00::7]:37563": the job's number, and the addresses of mpirun's host.
struct Uri {
  std::uint64_t job = 0;
  std::vector<std::string> hosts;
};

/// Adds the hosts of "tcp://192.0.2.2,198.51.100.7:37563" or of the like for IPv6, and none of something else; false where they cannot be read.
bool add_hosts(std::string_view contact, std::vector<std::string>& hosts) {
  std::string_view end = ":";
  if (contact.starts_with("tcp://")) {
    contact.remove_prefix(6);
  } else if (contact.starts_with("tcp6://[")) {
    contact.remove_prefix(8);
    end = "]";
  } else {
    return true;
  }
  const std::size_t length = contact.find(end);
  if (length == std::string_view::npos) return false;
  bool are_read = true;
  detail::for_each_piece(contact.substr(0, length), ',', [&](std::string_view host) {
    are_read = are_read && !host.empty();
    hosts.emplace_back(host);
  });
  return are_read;
}

std::optional<Uri> parse_uri(std::string_view text) {
  const std::size_t dot = text.find('.');
  const std::size_t semicolon = text.find(';');
  if (dot == std::string_view::npos || semicolon == std::string_view::npos || dot > semicolon) {
    return std::nullopt;
  }
  const std::optional<std::uint64_t> job = detail::parse_digits(text.substr(0, dot));
  if (!job.has_value()) return std::nullopt;
  Uri uri{*job, {}};
  bool are_read = true;
  detail::for_each_piece(text.substr(semicolon + 1), ';', [&](std::string_view contact) {
    are_read = add_hosts(contact, uri.hosts) && are_read;
  });
  if (!are_read || uri.hosts.empty()) return std::nullopt;
  return uri;
}

/// Where rank 0 may listen, the likeliest first; nothing where nobody says.
std::vector<std::string> chief_addresses(const LauncherVariables& variables, bool is_one_host) {
  std::string given = variables.find_chief_address();
  if (!given.empty()) return {std::move(given)};
  if (const std::optional<std::string> text = variables.find(kUriVariable)) {
    const std::optional<Uri> uri = parse_uri(*text);
    if (!uri.has_value()) {
      throw variables.error(kUriVariable, "a URI like '283705344.0;tcp://192.0.2.2:37563'", *text);
    }
    const std::uint16_t port = detail::port_of_job(uri->job / kJobStep);
    if (is_one_host) return {detail::join_host_port("127.0.0.1", port)};
    std::vector<std::string> addresses;
    addresses.reserve(uri->hosts.size());
    for (const std::string& host : uri->hosts) {
      if (host.starts_with("fe80:")) continue;  // of a link, which nobody names
      addresses.push_back(detail::join_host_port(host, port));
    }
    return addresses;
  }
  const std::optional<std::string> job = variables.find(detail::kPmixNamespaceVariable);
  if (!is_one_host || !job.has_value()) return {};
  return {detail::join_host_port("127.0.0.1", detail::port_of_job(detail::number_of_job(*job)))};
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
  if (place.size == 1) return identity;
  identity.job_id = variables.find(detail::kPmixNamespaceVariable).value_or("");
  std::vector<std::string> addresses =
      chief_addresses(variables, identity.local_num_workers == place.size);
  if (!addresses.empty()) {
    identity.chief_address = std::move(addresses[0]);
    addresses.erase(addresses.begin());
    identity.more_chief_addresses = std::move(addresses);
  }
  return identity;
}

}  // namespace crossdevice
