// SPDX-License-Identifier: Apache-2.0
/// pack_operation() and digest_of() of group_operation.h, where each call makes them: inline.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "crossdevice/comm/group_operation.h"
#include "crossdevice/core/fingerprint.h"

namespace crossdevice::detail {

/// Writes every byte of `packed`; its sequence is `info`'s.
inline void pack_operation_into(const GroupOperationInfo& info, GroupOperation& packed) {
  packed.kind = {};
  info.kind.copy(packed.kind.data(), packed.kind.size() - 1);
  packed.fingerprint = info.fingerprint;
  packed.num_values = info.num_values;
  packed.size_bytes = info.size_bytes;
  packed.dtype = static_cast<std::uint32_t>(info.dtype);
  packed.reduce_op = static_cast<std::uint32_t>(info.reduce_op);
  packed.sequence = info.sequence;
}

[[nodiscard]] inline std::uint64_t digest_of_packed(const GroupOperation& operation) {
  std::array<std::uint64_t, 3> kind{};
  static_assert(sizeof kind == sizeof operation.kind);
  std::memcpy(kind.data(), operation.kind.data(), sizeof kind);
  // A sum of products by odd numbers without a pattern: they are independent, so the processor computes them side by side.
  Fingerprint fingerprint;
  fingerprint.add(
      kind[0] * 0x9e3779b97f4a7c15U + kind[1] * 0xbf58476d1ce4e5b9U +
      kind[2] * 0x94d049bb133111ebU + operation.fingerprint * 0xd6e8feb86659fd93U +
      operation.num_values * 0xa0761d6478bd642fU + operation.size_bytes * 0xe7037ed1a0b428dbU +
      (std::uint64_t{operation.dtype} << 32U | operation.reduce_op) * 0x8ebc6af09c88c6e3U);
  return fingerprint.value();
}

}  // namespace crossdevice::detail
