// SPDX-License-Identifier: Apache-2.0
/// Which pack of a GradientBucketer an operation is, so that workers do not take one for another.
#pragma once

#include <cstdint>

#include "ops/detail/kind_text.h"

namespace crossdevice::detail {

struct StreamedPack {
  std::uint64_t bucketer = 0;  ///< of its ops object's, see OperationQueue::draw_bucketer()
  std::uint64_t step = 0;      ///< of that one's
  std::uint64_t pack = 0;      ///< of the step's
};

/// "step 12 pack 3": short enough for an operation's kind, which would be cut, up to twelve digits.
[[nodiscard]] inline KindText name_of(const StreamedPack& pack) {
  return KindText("step {} pack {}", pack.step, pack.pack);
}

}  // namespace crossdevice::detail
