// SPDX-License-Identifier: Apache-2.0
/// The library's spans as ranges of NVTX, in a domain "crossdevice", for NVIDIA's profilers. Nothing in a build without CUDA.
#pragma once

namespace crossdevice::detail {

/// Spans become ranges from now on, if a profiler is there: it is what sets NVTX_INJECTION64_PATH. Each range is called "all_reduce #12", and has its bytes
/// as payload.
void install_nvtx_ranges();

}  // namespace crossdevice::detail
