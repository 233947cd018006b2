// SPDX-License-Identifier: Apache-2.0
/// GPUs on which everything is done at once and nothing happens: what is left of a call's time is the library's own.
#pragma once

#include <cstddef>

namespace crossdevice::bench {

/// Tables for this process, before its first question for GPUs. Values are not reduced.
void install_null_gpus(int count);

/// Calls of CUDA, of the kernels' table and of NCCL so far, by all threads.
struct VendorCalls {
  std::size_t launches = 0;  ///< kernels, copies and NCCL's groups
  std::size_t others = 0;    ///< events, waits, questions
};
[[nodiscard]] VendorCalls vendor_calls();

}  // namespace crossdevice::bench
