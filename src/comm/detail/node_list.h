// SPDX-License-Identifier: Apache-2.0
/// Slurm's short forms: "n[1-2],m5,o[3-4,06]" and "4(x2),3".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace crossdevice::detail {

/// The hosts in order: n1 n2 m5 o3 o4 o06. Leading zeros stay ("[08-11]" is 08 09 10 11); several brackets in one name multiply.
/// Nothing where the text is no such list, or names more than 100,000 hosts.
[[nodiscard]] std::optional<std::vector<std::string>> expand_node_list(std::string_view text);

/// The numbers in order: 4 4 3. Nothing where the text is no such list, or has more than 100,000 numbers.
[[nodiscard]] std::optional<std::vector<int>> expand_task_counts(std::string_view text);

}  // namespace crossdevice::detail
