// SPDX-License-Identifier: Apache-2.0
/// Whether the process may open files, asked before others do it that do badly without: libraries that are loaded then.
#pragma once

#include <cstddef>

namespace crossdevice::detail {

struct SpareDescriptors {
  std::size_t count = 0;
  int error = 0;  ///< the errno of the next one, where there are fewer than wanted
};

/// Opens as many as are wanted, at once, and closes them again.
///
/// Threads  any; what others open meanwhile is not counted.
[[nodiscard]] SpareDescriptors spare_descriptors(std::size_t wanted);

}  // namespace crossdevice::detail
