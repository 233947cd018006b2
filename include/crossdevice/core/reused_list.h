// SPDX-License-Identifier: Apache-2.0
/// A list that is emptied and filled again, call after call, whose elements keep their memory meanwhile.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace crossdevice::detail {

/// T  default constructible, movable; its clear() empties it and keeps its memory.
///
/// Cost  add() allocates when there are more elements than ever before.
template <class T>
class ReusedList {
 public:
  /// An empty element at the end. Invalidates references to others.
  [[nodiscard]] T& add() {
    if (size_ == elements_.size()) elements_.emplace_back();
    return elements_[size_++];
  }
  [[nodiscard]] std::span<T> view() { return std::span(elements_).first(size_); }
  void clear() {
    for (T& element : view()) element.clear();
    size_ = 0;
  }

 private:
  std::vector<T> elements_;  // those behind size_ are empty
  std::size_t size_ = 0;
};

}  // namespace crossdevice::detail
