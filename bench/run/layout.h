// SPDX-License-Identifier: Apache-2.0
/// Which worker runs where, and where rank 0 listens.
#pragma once

#include <optional>
#include <string>

#include "crossdevice/comm/reserved_port.h"

#include "run/arguments.h"
#include "run/network_namespaces.h"
#include "run/worker_environment.h"

namespace crossdevice::run {

/// A worker's place among those on its host.
struct HostPlace {
  int host = 0;
  int local_rank = 0;
  int local_num_workers = 1;
};

/// Workers are dealt to hosts in contiguous blocks; where the numbers do not divide, the first hosts have one more.
[[nodiscard]] HostPlace place_on_host(int rank, int num_workers, int num_hosts);

/// All workers on this host, or on hosts that network namespaces make.
class Layout {
 public:
  /// `job`: a name no other job has.
  ///
  /// Errors   std::runtime_error: the namespaces cannot be made; no port is free.
  Layout(const Arguments& arguments, std::string job);

  /// All but the secret file.
  [[nodiscard]] WorkerPlace place(int rank) const;
  /// For setns(); -1: the worker runs where this process does.
  [[nodiscard]] int network_namespace(int rank) const;

 private:
  int num_workers_;
  int num_hosts_;
  std::string job_;
  std::string chief_address_;
  std::optional<detail::ReservedPort> port_;
  std::optional<NetworkNamespaces> namespaces_;
};

}  // namespace crossdevice::run
