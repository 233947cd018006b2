// SPDX-License-Identifier: Apache-2.0
/// What a collective operation is, so that the members of a group can tell whether they make the same call.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/export.h"
#include "crossdevice/core/reduce_op.h"

namespace crossdevice {

/// What all members must agree on before anybody touches anything.
struct GroupOperationInfo {
  std::string_view kind;  ///< up to 23 characters
  ReduceOp reduce_op = ReduceOp::SUM;
  DType dtype = DType::FLOAT32;  ///< of the first value
  std::uint64_t num_values = 0;
  std::uint64_t size_bytes = 0;   ///< of one replica's values
  std::uint64_t fingerprint = 0;  ///< over everything else that must be equal
  std::uint64_t sequence = 0;     ///< what errors call it besides; need not be equal. 0: nothing
};

/// The same as plain bytes without gaps, as others read it: it may hold anything.
struct GroupOperation {
  std::array<char, 24> kind{};
  std::uint64_t fingerprint = 0;
  std::uint64_t num_values = 0;
  std::uint64_t size_bytes = 0;
  std::uint32_t dtype = 0;
  std::uint32_t reduce_op = 0;
  std::uint64_t sequence = 0;
  friend bool operator==(const GroupOperation& a, const GroupOperation& b) {
    return a.kind == b.kind && a.fingerprint == b.fingerprint && a.num_values == b.num_values &&
           a.size_bytes == b.size_bytes && a.dtype == b.dtype && a.reduce_op == b.reduce_op;
  }
};

[[nodiscard]] CROSSDEVICE_EXPORT GroupOperation pack_operation(const GroupOperationInfo& info);
/// A number that is equal for equal operations and, all but certainly, differs for others.
[[nodiscard]] CROSSDEVICE_EXPORT std::uint64_t digest_of(const GroupOperation& operation);
/// Both, for those who announce equal operations again and again.
struct PreparedOperation {
  GroupOperation packed;
  std::uint64_t digest = 0;  ///< of `packed`
};
[[nodiscard]] CROSSDEVICE_EXPORT PreparedOperation
prepare_operation(const GroupOperationInfo& info);
/// "all_reduce #12 SUM of 2 float32 values, 1.5 MiB"; "barrier #13": what has no values, or reduces nothing, does not seem to. Never reads beyond what is there.
[[nodiscard]] CROSSDEVICE_EXPORT std::string describe(const GroupOperation& operation);
/// The same with "(fingerprint 9af0)" behind it.
[[nodiscard]] CROSSDEVICE_EXPORT std::string to_string(const GroupOperation& operation);
/// "all_reduce #12".
[[nodiscard]] CROSSDEVICE_EXPORT std::string short_name(const GroupOperation& operation);
/// Whether a worker that is seen in `last_operation` has left that one, or a later one of as many calls, and is in none since: "no operation since reduce #13", "barrier #5 of the cluster
/// after reduce #13".
[[nodiscard]] CROSSDEVICE_EXPORT bool has_left(std::string_view last_operation,
                                               const GroupOperation& operation);

}  // namespace crossdevice
