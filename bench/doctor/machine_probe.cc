// SPDX-License-Identifier: Apache-2.0
/// Cores and memory, and what a container leaves of them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include "crossdevice/device/host_thread_pool.h"
#include "crossdevice/device/reduce_kernel.h"

#include "collective/machine.h"
#include "doctor/probes.h"
#include "doctor/system_file.h"
#include "support/byte_size.h"

namespace crossdevice::doctor {
namespace {

using programs::format_byte_size;

/// In cores; 0: none. "200000 100000" are 2 cores.
double cpu_quota() {
  std::istringstream in(group_limit("cpu.max").value_or(""));
  double quota = 0;
  double period = 0;
  return in >> quota >> period && period > 0 ? quota / period : 0;
}

Finding find_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const int usable = ::sched_getaffinity(0, sizeof(mask), &mask) == 0 ? CPU_COUNT(&mask) : 0;
  const std::int64_t online = ::sysconf(_SC_NPROCESSORS_ONLN);
  const auto threads = HostThreadPool::instance().num_threads();
  const double quota = cpu_quota();
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

Finding find_memory() {
  constexpr std::size_t kLittle = std::size_t{1} << 30;
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t total = page * static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES));
  std::size_t available = bench::available_memory_bytes().value_or(0);
  Finding finding{.name = "memory"};
  finding.text =
      fmt::format("{}, {} available", format_byte_size(total), format_byte_size(available));
  finding.facts = {
      {"total_bytes", total}, {"available_bytes", available}, {"container_bytes", nullptr}};
  if (const auto limit = group_limit("memory.max")) {
    std::size_t bytes = 0;
    std::istringstream(*limit) >> bytes;
    finding.facts["container_bytes"] = bytes;
    finding.text += fmt::format("; the container may use {}", format_byte_size(bytes));
    available = std::min(available, bytes);
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

Findings probe_machine() { return {find_cores(), find_memory()}; }

}  // namespace crossdevice::doctor
