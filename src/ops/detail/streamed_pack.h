// SPDX-License-Identifier: Apache-2.0
/// Which pack of a GradientBucketer an operation is, so that workers do not take one for another.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

namespace crossdevice::detail {

struct StreamedPack {
  std::uint64_t bucketer = 0;  ///< of its ops object's, see OperationQueue::draw_bucketer()
  std::uint64_t step = 0;      ///< of that one's
  std::uint64_t pack = 0;      ///< of the step's
};

/// "step 12 pack 3": short enough for an operation's kind, which would be cut, up to twelve digits.
class StreamedPackName {
 public:
  explicit StreamedPackName(const StreamedPack& pack) {
    const auto end =
        fmt::format_to_n(text_.data(), text_.size(), "step {} pack {}", pack.step, pack.pack);
    size_ = std::min(end.size, text_.size());
  }
  [[nodiscard]] std::string_view view() const { return {text_.data(), size_}; }

 private:
  std::array<char, 23> text_{};
  std::size_t size_ = 0;
};

}  // namespace crossdevice::detail
