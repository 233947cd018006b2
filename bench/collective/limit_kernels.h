// SPDX-License-Identifier: Apache-2.0
/// The two plain loops of the physical limits, for one thread.
#pragma once

#include <cstddef>

namespace crossdevice::bench {

/// In how many places at once memory is walked through. Which is faster depends on the machine's prefetchers, by up to 25 % either way, and
/// a limit should be the best that plain loops can do: so both are measured.
enum class Walk { ONE_STREAM, FOUR_STREAMS };

/// data[i] *= factor. Compiled for several instruction sets, the best is picked at run time.
void scale_floats(float* data, std::size_t count, float factor, Walk walk);

/// Copies with stores that bypass the caches where the processor has them; else as memcpy.
void copy_non_temporal(void* target, const void* source, std::size_t size_bytes, Walk walk);

}  // namespace crossdevice::bench
