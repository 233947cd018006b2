// SPDX-License-Identifier: Apache-2.0
/// A vector whose first N elements live inside the object, so that small values are built without
/// allocating.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace crossdevice::detail {

/// Contiguous; grows only at the end; T is default constructible and cheap to move.
///
/// Memory   up to N elements allocate nothing; element N + 1 moves all of them into a std::vector.
///          A moved-from vector is empty.
/// Errors   strong guarantee: what throws while copying or growing leaves the vector as it was.
template <class T, std::size_t N>
class InlineVector {
 public:
  static_assert(N > 0);
  static_assert(std::is_nothrow_default_constructible_v<T> &&
                    std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T>,
                "spilling must not fail half way");

  InlineVector() = default;
  InlineVector(const InlineVector&) = default;
  InlineVector(InlineVector&& other) noexcept
      : inline_(std::move(other.inline_)),
        spilled_(std::exchange(other.spilled_, {})),
        size_(std::exchange(other.size_, 0)) {}
  InlineVector& operator=(const InlineVector& other) { return *this = InlineVector(other); }
  InlineVector& operator=(InlineVector&& other) noexcept {
    if (this != &other) {
      inline_ = std::move(other.inline_);
      spilled_ = std::exchange(other.spilled_, {});
      size_ = std::exchange(other.size_, 0);
    }
    return *this;
  }
  ~InlineVector() = default;

  template <class Range>
  static InlineVector copy_of(const Range& range) {
    InlineVector result;
    for (const auto& item : range) result.push_back(item);
    return result;
  }

  void push_back(T item) {
    if (spilled_.empty() && size_ < N) {
      inline_[size_++] = std::move(item);
      return;
    }
    if (spilled_.empty()) {
      spilled_.reserve(2 * N);
      for (T& held : inline_) spilled_.push_back(std::exchange(held, T{}));
    }
    spilled_.push_back(std::move(item));
    size_ = spilled_.size();
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] T* data() { return spilled_.empty() ? inline_.data() : spilled_.data(); }
  [[nodiscard]] const T* data() const {
    return spilled_.empty() ? inline_.data() : spilled_.data();
  }
  [[nodiscard]] T& operator[](std::size_t i) { return data()[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const { return data()[i]; }
  [[nodiscard]] T* begin() { return data(); }
  [[nodiscard]] T* end() { return data() + size_; }
  [[nodiscard]] const T* begin() const { return data(); }
  [[nodiscard]] const T* end() const { return data() + size_; }
  [[nodiscard]] std::span<const T> view() const { return {data(), size_}; }

 private:
  std::array<T, N> inline_{};
  std::vector<T> spilled_;  // holds everything once it holds anything
  std::size_t size_ = 0;
};

}  // namespace crossdevice::detail
