// SPDX-License-Identifier: Apache-2.0
/// A job whose workers run on several hosts.
#pragma once

#include <string>
#include <vector>

#include "run/arguments.h"
#include "run/host_list.h"

namespace crossdevice::run {

/// A host's share of the workers.
struct HostShare {
  std::string name;
  int first_rank = 0;
  int num_workers = 1;
  bool is_local = false;
};

/// Deals the ranks to the hosts in order, each as many as it has slots, as far as they go. A host that is named twice, or this machine under
/// several names, is one with the sum of the slots, where it is named first.
[[nodiscard]] std::vector<HostShare> share_out(const std::vector<Host>& hosts, int num_workers);

/// As run_job(), on arguments.hosts: workers on this machine are this process's children; for each other host one remote shell runs
/// crossdevice-run --host-agent there. Where `trace` is not empty the parts of the job's timeline lie beside it at the end, those of other hosts too.
[[nodiscard]] int run_job_on_hosts(const Arguments& arguments, const std::string& trace);

}  // namespace crossdevice::run
