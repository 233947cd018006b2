// SPDX-License-Identifier: Apache-2.0
/// A formatted text, cut to what GroupOperationInfo::kind may have; nothing comes from the heap.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/comm/group_operation.h"

namespace crossdevice::detail {

class KindText {
 public:
  template <class... Args>
  explicit KindText(fmt::format_string<Args...> format, Args&&... args) {
    const auto end =
        fmt::format_to_n(text_.data(), text_.size(), format, std::forward<Args>(args)...);
    size_ = std::min(end.size, text_.size());
  }
  [[nodiscard]] std::string_view view() const { return {text_.data(), size_}; }

 private:
  std::array<char, std::tuple_size_v<decltype(GroupOperation::kind)> - 1> text_{};
  std::size_t size_ = 0;
};

}  // namespace crossdevice::detail
