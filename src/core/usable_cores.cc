// SPDX-License-Identifier: Apache-2.0
// Asks the kernel for the affinity mask.
#include "crossdevice/core/usable_cores.h"

#include <cstddef>
#include <map>
#include <vector>

#include <sched.h>
#include <unistd.h>

namespace crossdevice::detail {
namespace {

/// Gives a process a core, moving others to other cores of theirs where that helps; `tried` are the cores that did not.
bool give_core(std::span<const std::set<int>> usable, std::size_t process,
               std::map<int, std::size_t>& owners, std::set<int>& tried) {
  for (const int core : usable[process]) {
    if (!tried.insert(core).second) continue;
    const auto owner = owners.find(core);
    if (owner != owners.end() && !give_core(usable, owner->second, owners, tried)) continue;
    owners[core] = process;
    return true;
  }
  return false;
}

}  // namespace

std::set<int> usable_cores() {
  std::set<int> cores;
  // The kernel refuses a mask shorter than its own, so ask with longer ones.
  for (std::size_t num_sets = 1; num_sets <= 64; num_sets *= 2) {
    std::vector<cpu_set_t> mask(num_sets);
    const std::size_t size_bytes = num_sets * sizeof(cpu_set_t);
    if (sched_getaffinity(getpid(), size_bytes, mask.data()) != 0) continue;
    for (std::size_t core = 0; core < 8 * size_bytes; ++core) {
      if (CPU_ISSET_S(core, size_bytes, mask.data())) cores.insert(static_cast<int>(core));
    }
    break;
  }
  return cores;
}

bool can_have_a_core_each(std::span<const std::set<int>> usable) {
  std::map<int, std::size_t> owners;
  for (std::size_t process = 0; process < usable.size(); ++process) {
    std::set<int> tried;
    if (!give_core(usable, process, owners, tried)) return false;
  }
  return true;
}

}  // namespace crossdevice::detail
