// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/group_operation.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <system_error>

#include <fmt/format.h>

#include "crossdevice/core/format_bytes.h"

#include "comm/detail/operation_note.h"
#include "comm/detail/packed_operation.h"

namespace crossdevice {
namespace {

constexpr std::uint32_t kNumReduceOps = static_cast<std::uint32_t>(ReduceOp::PROD) + 1;

/// To the byte, so that two that differ look different.
std::string size_text(std::uint64_t size_bytes) {
  std::string text = format_bytes(size_bytes);
  if (size_bytes >= 1024) text += fmt::format(" = {} B", size_bytes);
  return text;
}

std::string_view kind_of(const GroupOperation& operation) {
  const auto end = std::find(operation.kind.begin(), operation.kind.end(), '\0');
  return {operation.kind.data(), static_cast<std::size_t>(end - operation.kind.begin())};
}

/// Whether its reduce_op means anything. Kinds go on behind their names: "gather on hosts".
bool reduces(const GroupOperation& operation) {
  const std::string_view kind = kind_of(operation);
  const std::string_view name = kind.substr(0, kind.find(' '));
  return name != "barrier" && name != "gather" && name != "all_gather" && name != "broadcast";
}

}  // namespace

GroupOperation pack_operation(const GroupOperationInfo& info) {
  GroupOperation packed;
  detail::pack_operation_into(info, detail::words_of_kind(info.kind), info.sequence, packed);
  return packed;
}

std::uint64_t digest_of(const GroupOperation& operation) {
  return detail::digest_of_operation(operation, detail::words_of(operation));
}

PreparedOperation prepare_operation(const GroupOperationInfo& info) {
  const GroupOperation packed = pack_operation(info);
  return {packed, digest_of(packed)};
}

std::string short_name(const GroupOperation& operation) {
  const std::string_view kind = kind_of(operation);
  if (operation.sequence == 0) return std::string(kind);
  return fmt::format("{} #{}", kind, operation.sequence);
}

bool has_left(std::string_view last_operation, const GroupOperation& operation) {
  using detail::OperationNote;
  const std::string idle = fmt::format("{}{}", OperationNote::kNone, OperationNote::kSince);
  const std::string in_round =
      fmt::format("{}{}", OperationNote::kOfCluster, OperationNote::kAfter);
  const bool is_in_round = last_operation.find(in_round) != std::string_view::npos;
  if (!last_operation.starts_with(idle) && !is_in_round) return false;
  if (last_operation.ends_with(OperationNote::kOrLater)) {
    last_operation.remove_suffix(std::string_view(OperationNote::kOrLater).size());
  }
  const std::size_t mark = last_operation.rfind('#');
  if (mark == std::string_view::npos) return false;
  const std::string_view digits = last_operation.substr(mark + 1);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size() && operation.sequence != 0 &&
         number >= operation.sequence;
}

std::string describe(const GroupOperation& operation) {
  std::string text = short_name(operation);
  if (reduces(operation)) {
    text += fmt::format(" {}", operation.reduce_op < kNumReduceOps
                                   ? to_string(static_cast<ReduceOp>(operation.reduce_op))
                                   : "unknown");
  }
  if (operation.num_values == 0 && operation.size_bytes == 0) return text;
  return text + fmt::format(" of {} {} {}, {}", operation.num_values,
                            operation.dtype < kNumDTypes
                                ? to_string(static_cast<DType>(operation.dtype))
                                : "unknown",
                            operation.num_values == 1 ? "value" : "values",
                            size_text(operation.size_bytes));
}

std::string to_string(const GroupOperation& operation) {
  return fmt::format("{} (fingerprint {:x})", describe(operation), operation.fingerprint);
}

}  // namespace crossdevice
