// SPDX-License-Identifier: Apache-2.0
/// The two plain loops of the physical limits, for one thread.
#pragma once

#include <cstddef>

namespace crossdevice::bench {

/// data[i] *= factor. Compiled for several instruction sets, the best is picked at run time.
void scale_floats(float* data, std::size_t count, float factor);

/// Copies with stores that bypass the caches where the processor has them; else as memcpy.
void copy_non_temporal(void* target, const void* source, std::size_t size_bytes);

}  // namespace crossdevice::bench
