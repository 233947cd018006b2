// SPDX-License-Identifier: Apache-2.0
/// Plain structs one after the other, in the slot of an announcement or in a message.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {

/// Errors   (of both) InternalError: beyond the end.
class SlotWriter {
 public:
  explicit SlotWriter(std::span<std::byte> slot) : rest_(slot) {}
  template <class T>
  void put(const T& value) {
    if (rest_.size() < sizeof value) throw InternalError("a slot is too small");
    std::memcpy(rest_.data(), &value, sizeof value);
    rest_ = rest_.subspan(sizeof value);
  }

 private:
  std::span<std::byte> rest_;
};

class SlotReader {
 public:
  explicit SlotReader(std::span<const std::byte> slot) : rest_(slot) {}
  template <class T>
  [[nodiscard]] T get() {
    if (rest_.size() < sizeof(T)) throw InternalError("a worker announced more than fits");
    T value;
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_ = rest_.subspan(sizeof value);
    return value;
  }
  /// What has not been got yet.
  [[nodiscard]] std::span<const std::byte> rest() const { return rest_; }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace crossdevice::detail
