// SPDX-License-Identifier: Apache-2.0
/// The limits of this process: ulimit.
#include <string>

#include <fmt/format.h>
#include <sys/resource.h>

#include "doctor/probes.h"
#include "doctor/system.h"
#include "support/byte_size.h"

namespace crossdevice::doctor {
namespace {

rlim_t soft_limit(const System& system, int resource) {
  rlimit limit{};
  return system.calls.limit_of(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

std::string number(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : fmt::format("{}", limit);
}

std::string size(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : programs::format_byte_size(limit);
}

nlohmann::ordered_json fact(rlim_t limit) {
  return limit == RLIM_INFINITY ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(limit);
}

/// A worker holds some for itself and some for each other worker.
Finding find_open_files(const System& system) {
  constexpr rlim_t kEnough = 1024;
  constexpr rlim_t kLeast = 128;
  const rlim_t limit = soft_limit(system, RLIMIT_NOFILE);
  Finding finding{.name = "open files", .text = number(limit)};
  finding.facts = {{"limit", fact(limit)}};
  if (limit < kEnough) {
    finding.status = limit < kLeast ? Status::FAILURE : Status::SHORTFALL;
    finding.advice =
        "connections, shared memory and GPUs' drivers need descriptors: ulimit -n 4096";
  }
  return finding;
}

/// The pool and the windows reserve addresses far beyond what they fill.
Finding find_address_space(const System& system) {
  const rlim_t limit = soft_limit(system, RLIMIT_AS);
  Finding finding{.name = "address space", .text = size(limit)};
  finding.facts = {{"limit_bytes", fact(limit)}};
  if (limit != RLIM_INFINITY) {
    finding.status = Status::SHORTFALL;
    finding.advice =
        "memory pools and CUDA reserve more addresses than they fill: ulimit -v unlimited";
  }
  return finding;
}

/// Only RDMA pins memory of the process.
Finding find_locked_memory(const System& system) {
  const bool has_rdma = !system.rdma_devices().empty();
  const rlim_t limit = soft_limit(system, RLIMIT_MEMLOCK);
  Finding finding{
      .name = "locked memory",
      .text = size(limit) + (has_rdma ? "" : "; nothing here needs it (no RDMA device)")};
  finding.facts = {{"limit_bytes", fact(limit)}, {"has_rdma_device", has_rdma}};
  if (has_rdma && limit != RLIM_INFINITY) {
    finding.status = Status::SHORTFALL;
    finding.advice =
        "RDMA pins what it sends: ulimit -l unlimited (docker run --ulimit memlock=-1, or memlock "
        "in /etc/security/limits.conf)";
  }
  return finding;
}

}  // namespace

Findings probe_limits(const System& system) {
  return {find_open_files(system), find_address_space(system), find_locked_memory(system)};
}

}  // namespace crossdevice::doctor
