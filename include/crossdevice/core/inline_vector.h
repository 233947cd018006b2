// SPDX-License-Identifier: Apache-2.0
/// A vector whose first N elements live inside the object, so that small values are built without
/// allocating.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace crossdevice::detail {

/// Contiguous; grows only at the end; T is cheap to move.
///
/// Memory   up to N elements allocate nothing; element N + 1 moves all of them into a std::vector.
///          A moved-from vector is empty.
/// Cost     copies and moves touch the elements that there are, not the room for N.
/// Errors   strong guarantee: what throws while copying or growing leaves the vector as it was.
template <class T, std::size_t N>
class InlineVector {
 public:
  static_assert(N > 0);
  static_assert(std::is_nothrow_move_constructible_v<T>, "spilling must not fail half way");

  InlineVector() noexcept {
  }  // not `= default`, by which InlineVector() would fill the room with zeros
  InlineVector(const InlineVector& other) : InlineVector() {
    if (other.is_spilled()) {
      spilled_ = other.spilled_;
      size_ = other.size_;
    } else {
      append_copies(other.view());
    }
  }
  InlineVector(InlineVector&& other) noexcept { take(other); }
  InlineVector& operator=(const InlineVector& other) { return *this = InlineVector(other); }
  InlineVector& operator=(InlineVector&& other) noexcept {
    if (this != &other) {
      clear();
      take(other);
    }
    return *this;
  }
  ~InlineVector() { clear(); }

  template <class Range>
  static InlineVector copy_of(const Range& range) {
    InlineVector result;
    if constexpr (std::is_convertible_v<const Range&, std::span<const T>>) {
      const std::span<const T> items(range);
      if (items.size() <= N) {
        result.append_copies(items);
        return result;
      }
    }
    for (const auto& item : range) result.push_back(item);
    return result;
  }

  void push_back(T item) {
    if (!is_spilled() && size_ < N) {
      std::construct_at(&room_.items[size_], std::move(item));
      ++size_;
      return;
    }
    if (!is_spilled()) {
      spilled_.reserve(2 * N);
      for (T& held : room_.items) spilled_.push_back(std::move(held));
      std::destroy_n(&room_.items[0], N);
    }
    spilled_.push_back(std::move(item));
    size_ = spilled_.size();
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] T* data() { return is_spilled() ? spilled_.data() : &room_.items[0]; }
  [[nodiscard]] const T* data() const { return is_spilled() ? spilled_.data() : &room_.items[0]; }
  [[nodiscard]] T& operator[](std::size_t i) { return data()[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const { return data()[i]; }
  [[nodiscard]] T* begin() { return data(); }
  [[nodiscard]] T* end() { return data() + size_; }
  [[nodiscard]] const T* begin() const { return data(); }
  [[nodiscard]] const T* end() const { return data() + size_; }
  [[nodiscard]] std::span<const T> view() const { return {data(), size_}; }

 private:
  /// Room for N elements, of which the first `size_` live while nothing is spilled.
  union Room {
    Room() {}   // NOLINT(modernize-use-equals-default): elements begin to live one by one
    ~Room() {}  // NOLINT(modernize-use-equals-default)
    T items[N];
  };

  /// Where there is room for them. An element that throws ends it: those before it are there.
  void append_copies(std::span<const T> items) {
    for (const T& item : items) {
      std::construct_at(&room_.items[size_], item);
      ++size_;
    }
  }
  [[nodiscard]] bool is_spilled() const { return !spilled_.empty(); }
  void clear() noexcept {
    if (is_spilled()) {
      spilled_.clear();
    } else {
      std::destroy_n(&room_.items[0], size_);
    }
    size_ = 0;
  }
  /// This one is empty.
  void take(InlineVector& other) noexcept {
    if (other.is_spilled()) {
      spilled_ = std::move(other.spilled_);
      other.spilled_.clear();
    } else {
      for (std::size_t i = 0; i < other.size_; ++i) {
        std::construct_at(&room_.items[i], std::move(other.room_.items[i]));
      }
      std::destroy_n(&other.room_.items[0], other.size_);
    }
    size_ = std::exchange(other.size_, 0);
  }

  Room room_;
  std::vector<T> spilled_;  // holds everything once it holds anything
  std::size_t size_ = 0;
};

}  // namespace crossdevice::detail
