// SPDX-License-Identifier: Apache-2.0
/// What machine this is, as far as it explains the figures.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace crossdevice::bench {

/// "AMD EPYC, 2 cores, 32 MiB of third-level cache; AVX3 kernels on 2 threads; huge pages for the pool's memory: yes, for ordinary memory: madvise".
[[nodiscard]] std::string describe_machine();

/// Memory that can be had without swapping; nothing where the system does not say.
[[nodiscard]] std::optional<std::size_t> available_memory_bytes();

}  // namespace crossdevice::bench
