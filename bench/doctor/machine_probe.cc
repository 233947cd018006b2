// SPDX-License-Identifier: Apache-2.0
/// Cores and memory, and what a container leaves of them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include "crossdevice/device/host_thread_pool.h"
#include "crossdevice/device/reduce_kernel.h"

#include "collective/machine.h"
#include "doctor/control_group.h"
#include "doctor/probes.h"
#include "doctor/system.h"
#include "support/byte_size.h"

namespace crossdevice::doctor {
namespace {

using programs::format_byte_size;

Finding find_cores(const System& system) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const int usable = ::sched_getaffinity(0, sizeof(mask), &mask) == 0 ? CPU_COUNT(&mask) : 0;
  const std::int64_t online = ::sysconf(_SC_NPROCESSORS_ONLN);
  const auto threads = HostThreadPool::instance().num_threads();
  const double quota = group_cores(system).value_or(0);
  Finding finding{.name = "processor"};
  finding.text = bench::describe_machine();
  finding.text.erase(std::min(finding.text.find("; huge pages"), finding.text.size()));
  if (usable > 0 && usable < online) {
    finding.text += fmt::format("; this process may use {} of {} cores", usable, online);
  }
  if (quota > 0) finding.text += fmt::format("; the container may use {:g} cores", quota);
  finding.facts = {{"cores", online},
                   {"usable_cores", usable},
                   {"quota_cores", quota},
                   {"threads", threads},
                   {"kernels", reduce_kernel_target()}};
  if (quota > 0 && static_cast<double>(threads) > quota) {
    finding.status = Status::SHORTFALL;
    finding.advice = fmt::format(
        "{} threads share {:g} cores' time and are stopped when it is used up: set "
        "CROSSDEVICE_NUM_THREADS={}",
        threads, quota, quota < 1 ? 1 : static_cast<int>(quota));
  }
  return finding;
}

/// Memory that can be had without swapping.
std::size_t available_bytes(const System& system) {
  return system.number_in("/proc/meminfo", "MemAvailable:").value_or(0) << 10U;
}

Finding find_memory(const System& system) {
  constexpr std::size_t kLittle = std::size_t{1} << 30;
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t total = page * static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES));
  std::size_t available = available_bytes(system);
  Finding finding{.name = "memory"};
  finding.text =
      fmt::format("{}, {} available", format_byte_size(total), format_byte_size(available));
  finding.facts = {{"total_bytes", total},
                   {"available_bytes", available},
                   {"container_bytes", nullptr},
                   {"container_free_bytes", nullptr}};
  if (const auto container = group_memory(system)) {
    finding.facts["container_bytes"] = container->limit_bytes;
    finding.facts["container_free_bytes"] = container->free_bytes;
    finding.text += fmt::format("; the container may use {}, of which {} are left",
                                format_byte_size(container->limit_bytes),
                                format_byte_size(container->free_bytes));
    available = std::min(available, container->free_bytes);
  }
  if (available < kLittle) {
    finding.status = Status::SHORTFALL;
    finding.advice =
        "tensors from the pool and shared memory count as this process's memory: end something "
        "else, or give the container "
        "more (docker run --memory)";
  }
  return finding;
}

}  // namespace

Findings probe_machine(const System& system) { return {find_cores(system), find_memory(system)}; }

}  // namespace crossdevice::doctor
