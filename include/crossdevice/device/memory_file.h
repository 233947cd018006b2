// SPDX-License-Identifier: Apache-2.0
/// Memory that other processes can map.
#pragma once

#include <cstddef>
#include <string_view>

namespace crossdevice::detail {

/// The descriptor of a memfd of that size, all zero, which nobody can grow or shrink; its owner closes it. `name` shows in /proc/self/maps, its first 249
/// characters. -1, and errno says why, where the system refuses; also where the program's own limit on sizes of files (ulimit -f) is too low, which
/// raises no signal.
///
/// Threads  any.
[[nodiscard]] int make_memory_file(std::size_t size_bytes, std::string_view name);

}  // namespace crossdevice::detail
