// SPDX-License-Identifier: Apache-2.0
/// pack_operation() and digest_of() of group_operation.h, where each call makes them: inline, and in registers. Bytes that are written one by one and read as
/// words at once would have to wait for each other.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "crossdevice/comm/group_operation.h"
#include "crossdevice/core/fingerprint.h"

namespace crossdevice::detail {

/// GroupOperation::kind as words.
using KindWords = std::array<std::uint64_t, 3>;
static_assert(sizeof(KindWords) == sizeof GroupOperation().kind);

template <class Word>
[[nodiscard]] inline std::uint64_t word_at(const char* text) {
  Word word = 0;
  std::memcpy(&word, text, sizeof word);
  return word;
}

/// The first 23 characters, and zeros.
[[nodiscard]] inline KindWords words_of_kind(std::string_view kind) {
  const std::size_t size = std::min(kind.size(), sizeof(KindWords) - 1);
  const char* const text = kind.data();
  if constexpr (std::endian::native != std::endian::little) {
    KindWords words{};
    std::memcpy(words.data(), text, size);
    return words;
  }
  // Never beyond the text: the last word overlaps the one before, and what both have is shifted out.
  const auto last_word = [&](std::size_t end) {
    return word_at<std::uint64_t>(text + size - 8) >> 8 * (end - size);
  };
  if (size > 16)
    return {word_at<std::uint64_t>(text), word_at<std::uint64_t>(text + 8), last_word(24)};
  if (size > 8) return {word_at<std::uint64_t>(text), last_word(16), 0};
  if (size >= 4) {
    return {
        word_at<std::uint32_t>(text) | word_at<std::uint32_t>(text + size - 4) << 8 * (size - 4), 0,
        0};
  }
  KindWords words{};
  for (std::size_t i = 0; i < size; ++i) words[0] |= word_at<std::uint8_t>(text + i) << 8 * i;
  return words;
}

[[nodiscard]] inline KindWords words_of(const GroupOperation& operation) {
  KindWords words{};
  std::memcpy(words.data(), operation.kind.data(), sizeof words);
  return words;
}

/// Writes every byte of `packed`. `kind`: info's.
inline void pack_operation_into(const GroupOperationInfo& info, const KindWords& kind,
                                std::uint64_t sequence, GroupOperation& packed) {
  std::memcpy(packed.kind.data(), kind.data(), sizeof kind);
  packed.fingerprint = info.fingerprint;
  packed.num_values = info.num_values;
  packed.size_bytes = info.size_bytes;
  packed.dtype = static_cast<std::uint32_t>(info.dtype);
  packed.reduce_op = static_cast<std::uint32_t>(info.reduce_op);
  packed.sequence = sequence;
}

/// `operation`: packed or not.
template <class Operation>
[[nodiscard]] std::uint64_t digest_of_operation(const Operation& operation, const KindWords& kind) {
  Fingerprint fingerprint;
  fingerprint.add(kind[0], kind[1], kind[2], operation.fingerprint, operation.num_values,
                  operation.size_bytes,
                  static_cast<std::uint64_t>(operation.dtype) << 32U |
                      static_cast<std::uint64_t>(operation.reduce_op));
  return fingerprint.value();
}

}  // namespace crossdevice::detail
