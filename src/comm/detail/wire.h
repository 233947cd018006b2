// SPDX-License-Identifier: Apache-2.0
/// Numbers and texts as bytes: least significant byte first, texts and lists with their length before them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace crossdevice::detail {

/// What came is no message: too short, too long, or with values that cannot be.
class WireError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class WireWriter {
 public:
  template <class T>
  requires std::is_integral_v<T> WireWriter& number(T value) {
    auto rest = static_cast<std::make_unsigned_t<T>>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<char>(rest & 0xFFU));
      if constexpr (sizeof(T) > 1) rest = static_cast<decltype(rest)>(rest >> 8U);
    }
    return *this;
  }
  WireWriter& text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    bytes_.append(value);
    return *this;
  }
  /// Bytes whose number both sides know.
  WireWriter& raw(std::string_view value) {
    bytes_.append(value);
    return *this;
  }
  template <class T, class WriteItem>
  WireWriter& list(const std::vector<T>& items, WriteItem write_item) {
    number(static_cast<std::uint32_t>(items.size()));
    for (const T& item : items) write_item(*this, item);
    return *this;
  }
  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads what WireWriter wrote. The bytes may come from anybody: nothing is allocated that they do not pay for, and every
/// step checks what is left.
///
/// Errors   WireError.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  template <class T>
  requires std::is_integral_v<T>
  [[nodiscard]] T number() {
    const std::string_view bytes = raw(sizeof(T));
    std::make_unsigned_t<T> value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      const auto byte = static_cast<unsigned char>(bytes[i]);
      value = static_cast<decltype(value)>(value | (static_cast<decltype(value)>(byte) << (8 * i)));
    }
    return static_cast<T>(value);
  }
  [[nodiscard]] std::string text() { return std::string(raw(number<std::uint32_t>())); }
  [[nodiscard]] std::string_view raw(std::size_t size) {
    if (size > rest_.size()) throw WireError("a message ends too early");
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }
  template <std::size_t N>
  [[nodiscard]] std::array<unsigned char, N> block() {
    std::array<unsigned char, N> bytes{};
    std::memcpy(bytes.data(), raw(N).data(), N);
    return bytes;
  }
  /// `read_item` reads at least one byte.
  template <class T, class ReadItem>
  [[nodiscard]] std::vector<T> list(ReadItem read_item) {
    const auto count = number<std::uint32_t>();
    if (count > rest_.size()) throw WireError("a list is longer than its message");
    std::vector<T> items;
    for (std::uint32_t i = 0; i < count; ++i) items.push_back(read_item(*this));
    return items;
  }
  void require_end() const {
    if (!rest_.empty()) throw WireError("a message is longer than what it says");
  }

 private:
  std::string_view rest_;
};

}  // namespace crossdevice::detail
