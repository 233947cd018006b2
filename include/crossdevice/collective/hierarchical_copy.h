// SPDX-License-Identifier: Apache-2.0
/// The schedule of HierarchicalCopyAllReduce: two halves, each reduced on a main device of its own, then the two together.
///
/// Source: TF's hierarchical copy, made for the DGX-1 (GPUs 0-3 and 4-7 fully connected, plus links i <-> i + 4). TF drops the last of an odd
/// number of devices; here the second half takes it.
#pragma once

#include <cstddef>

#include "crossdevice/collective/schedule.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// How many participants form the first half: n / 2 (0 for a single one: no halves).
[[nodiscard]] constexpr std::size_t hierarchical_first_half(std::size_t num_participants) {
  return num_participants / 2;
}

/// The schedule of pack `pack` over `num_participants` devices. The main device of the first step is pack mod n, which spreads the load.
/// For even n the steps are TF's.
///
/// Cost     with n devices and S bytes: n reads into two sums, one combination, n - 1 copies.
/// Errors   ValueError: no participants.
[[nodiscard]] CROSSDEVICE_EXPORT Schedule hierarchical_copy_schedule(std::size_t num_participants,
                                                                     std::size_t pack);

}  // namespace crossdevice
