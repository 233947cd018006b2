// SPDX-License-Identifier: Apache-2.0
/// How much data the processor's caches hold.
#pragma once

#include <cstddef>
#include <filesystem>
#include <set>

namespace crossdevice::detail {

/// The second-level caches of the cores this process may run on, together; 1 MiB per core where the kernel does not describe
/// them. Found out once.
[[nodiscard]] std::size_t second_level_cache_bytes();

/// The same from a directory like /sys/devices/system/cpu and a set of core numbers; 0 where it says nothing.
[[nodiscard]] std::size_t second_level_cache_bytes(const std::filesystem::path& directory,
                                                   const std::set<int>& cores);

}  // namespace crossdevice::detail
