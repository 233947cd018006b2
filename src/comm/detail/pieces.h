// SPDX-License-Identifier: Apache-2.0
/// Lists as variables have them, without copies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace crossdevice::detail {

/// Calls `use` with each piece between separators, empty ones too; of an empty text that is one.
template <class Use>
void for_each_piece(std::string_view text, char separator, Use use) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    use(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

}  // namespace crossdevice::detail
