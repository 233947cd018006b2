// SPDX-License-Identifier: Apache-2.0
/// What the kernel says of another process: where it listens, what it has open, how much memory it has had.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

namespace crossdevice::strangers {

/// The TCP ports on which it listens, ascending.
[[nodiscard]] std::vector<std::uint16_t> doors_of(pid_t process);

struct OpenFile {
  int number = -1;
  std::string target{};  // "socket:[4711]", "/memfd:crossdevice ... (deleted)"
};
[[nodiscard]] std::vector<OpenFile> open_files_of(pid_t process);

/// The most memory that it has had resident.
[[nodiscard]] std::size_t peak_bytes_of(pid_t process);

/// The bytes of one of its files in /proc: "cmdline", "environ".
[[nodiscard]] std::string proc_file_of(pid_t process, const std::string& name);

}  // namespace crossdevice::strangers
