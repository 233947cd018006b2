// SPDX-License-Identifier: Apache-2.0
/// What the kernel says in small files.
#pragma once

#include <optional>
#include <set>
#include <string>

namespace crossdevice::doctor {

/// The first line; nothing where the file cannot be read.
[[nodiscard]] std::optional<std::string> first_line_of(const std::string& path);

/// The choice in brackets of a file such as "always [madvise] never".
[[nodiscard]] std::optional<std::string> choice_of(const std::string& path);

/// What a file of this process's control group says ("memory.max"), from the group upwards: the first that sets a limit. Nothing where none does.
[[nodiscard]] std::optional<std::string> group_limit(const std::string& file);

/// RDMA devices, by name.
[[nodiscard]] std::set<std::string> rdma_devices();

}  // namespace crossdevice::doctor
