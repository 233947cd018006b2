// SPDX-License-Identifier: Apache-2.0
/// The schedule of HierarchicalCopyAllReduce: two halves, each reduced on a main device of its own, then the two together.
///
/// Source: TF's hierarchical copy, made for the DGX-1 (GPUs 0-3 and 4-7 fully connected, plus links i <-> i + 4).
#pragma once

#include <cstddef>

#include "crossdevice/collective/schedule.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// How many participants form the first half: n / 2 (0 for a single one: no halves).
[[nodiscard]] constexpr std::size_t hierarchical_first_half(std::size_t num_participants) {
  return num_participants / 2;
}

/// The schedule of pack `pack`, `num_elements` elements, over n = `num_participants` devices:
///
///   1. main0 = pack mod n reduces its half, in device order; main1, main0's opposite in the other half, reduces the other
///   2. main0 reduces the two sums, its own first
///   3. main1 copies from main0, then every other device, in order, from the main device of its half
///
/// Rotating main0 with the pack spreads the load. A single device takes step 1 alone, over itself.
///
/// Cost     with n > 1 devices and S bytes each: n reads into two sums, one combination, n - 1 copies of S bytes.
/// Errors   ValueError: no participants.
/// TF       the same steps for even n. Where TF drops the last of an odd number of devices, the second half takes it; its
///          opposite is device 0.
[[nodiscard]] CROSSDEVICE_EXPORT Schedule hierarchical_copy_schedule(std::size_t num_participants,
                                                                     std::size_t num_elements,
                                                                     std::size_t pack);

}  // namespace crossdevice
