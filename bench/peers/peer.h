// SPDX-License-Identifier: Apache-2.0
/// A library that ours is held against, and the measurement of it: crossdevice-bench's own, but for the call.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "collective/team.h"

namespace crossdevice::bench {

/// One all-reduce of float32 by SUM; in place where input == output.
using PeerAllReduce = std::function<void(const float* input, float* output, std::size_t count)>;

struct Peer {
  std::string name;       ///< "openmpi"
  std::string algorithm;  ///< how it was set up: "as it comes"
  std::string version;    ///< for people
  Team team;
  PeerAllReduce all_reduce;
};

/// Takes crossdevice-bench's arguments, as far as they fit: all_reduce, or --gradients, whose tensors are reduced one after the other, a call for
/// each. With --packed, an argument of peers alone, only the list is measured: its tensors are copied to one buffer, which keeps its memory, one call
/// reduces that in place, and the results are copied back; the copies are in the time. Buffers are not from the library's pool. Values, timing, limits,
/// table and file are crossdevice-bench's. Returns the program's exit code.
///
/// Ranks    collective over the team.
/// Errors   ArgumentError: other operations, dtypes, reductions or devices than these; --packed without a list.
[[nodiscard]] int measure_peer(Peer& peer, int argc, const char* const* argv);

}  // namespace crossdevice::bench
