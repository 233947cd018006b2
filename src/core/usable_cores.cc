// SPDX-License-Identifier: Apache-2.0
// Asks the kernel for the affinity mask.
#include "crossdevice/core/usable_cores.h"

#include <cstddef>
#include <vector>

#include <sched.h>
#include <unistd.h>

namespace crossdevice::detail {

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

}  // namespace crossdevice::detail
