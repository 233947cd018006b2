// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/group_operation.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "crossdevice/core/fingerprint.h"
#include "crossdevice/core/format_bytes.h"

namespace crossdevice {
namespace {

constexpr std::uint32_t kNumReduceOps = static_cast<std::uint32_t>(ReduceOp::PROD) + 1;

}  // namespace

GroupOperation pack_operation(const GroupOperationInfo& info) {
  GroupOperation packed;
  info.kind.copy(packed.kind.data(), packed.kind.size() - 1);
  packed.fingerprint = info.fingerprint;
  packed.num_values = info.num_values;
  packed.size_bytes = info.size_bytes;
  packed.dtype = static_cast<std::uint32_t>(info.dtype);
  packed.reduce_op = static_cast<std::uint32_t>(info.reduce_op);
  packed.sequence = info.sequence;
  return packed;
}

std::uint64_t digest_of(const GroupOperation& operation) {
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

std::string short_name(const GroupOperation& operation) {
  const auto end = std::find(operation.kind.begin(), operation.kind.end(), '\0');
  const std::string_view kind(operation.kind.data(),
                              static_cast<std::size_t>(end - operation.kind.begin()));
  if (operation.sequence == 0) return std::string(kind);
  return fmt::format("{} #{}", kind, operation.sequence);
}

std::string to_string(const GroupOperation& operation) {
  return fmt::format(
      "{} {} of {} {} values, {} (fingerprint {:x})", short_name(operation),
      operation.reduce_op < kNumReduceOps ? to_string(static_cast<ReduceOp>(operation.reduce_op))
                                          : "unknown",
      operation.num_values,
      operation.dtype < kNumDTypes ? to_string(static_cast<DType>(operation.dtype)) : "unknown",
      format_bytes(operation.size_bytes), operation.fingerprint);
}

}  // namespace crossdevice
