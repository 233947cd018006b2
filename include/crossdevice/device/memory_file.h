// SPDX-License-Identifier: Apache-2.0
/// Memory that other processes can map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace crossdevice::detail {

/// The descriptor of a memfd of that size, all zero, which nobody can grow or shrink; its owner closes it. `name` shows in /proc/self/maps, its first 249
/// characters. -1, and errno says why, where the system refuses one, or to seal it; also where the program's own limit on sizes of files (ulimit -f) is too
/// low, which raises no signal.
///
/// Threads  any.
[[nodiscard]] int make_memory_file(std::size_t size_bytes, std::string_view name);

/// Which of all memory files one is. Descriptors, processes and inodes have numbers that go to others once they are free; these do not.
struct MemoryFileMark {
  std::uint64_t process = 0;  ///< memory_file_process() of the process that made it
  std::uint64_t file = 0;     ///< counted by that process
};

/// A random number of this process.
///
/// Threads  any.
[[nodiscard]] std::uint64_t memory_file_process();

/// The name for a file that is to be known by its mark: `name`, its first 200 characters, and the mark. A memory file keeps its name as long as it
/// is open anywhere.
[[nodiscard]] std::string marked_name(std::string_view name, const MemoryFileMark& mark);

/// Whether what is open as `fd` is the file that was made with this mark. False also where the system does not say.
///
/// Threads  any.
[[nodiscard]] bool has_mark(int fd, const MemoryFileMark& mark);

}  // namespace crossdevice::detail
