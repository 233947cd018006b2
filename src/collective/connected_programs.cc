// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/connected_programs.h"

#include <vector>

namespace crossdevice::detail {

std::shared_ptr<const ScheduleProgram> ConnectedPrograms::find(const ProgramKey& key,
                                                               const Deadline& deadline) {
  if (!group_.is_mesh() && !is_ring(key.kind) && connected_.emplace(key.kind, key.root).second) {
    group_.agree(deadline);
    // With an element for every pair of ranks no message is left out.
    const std::size_t n = group_.num_ranks();
    const ProgramKey whole{.kind = key.kind, .num_elements = n * n, .root = key.root};
    std::vector<int> peers;
    for (const std::size_t peer : programs_.find(whole)->peers) {
      peers.push_back(static_cast<int>(peer));
    }
    group_.transport().connect(peers, deadline);
  }
  return programs_.find(key);
}

}  // namespace crossdevice::detail
