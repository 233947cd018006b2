// SPDX-License-Identifier: Apache-2.0
/// What an operation's error calls it, where those who found it know only its number.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "crossdevice/core/error.h"
#include "crossdevice/core/export.h"

namespace crossdevice::detail {

/// "batch_reduce #12 timed out: ..." as "batch_reduce #12 (161 values, 97.5 MiB) timed out after 5 s: ...". A text that begins otherwise stays as it is; so does a name of no values.
[[nodiscard]] CROSSDEVICE_EXPORT std::string with_full_name(std::string_view text,
                                                            const OperationRecord& operation,
                                                            std::optional<double> timeout_seconds);

/// What an operation knows of its inputs that an error from below does not.
struct InputsFate {
  bool may_be_written = false;    ///< by the operation at any time: an output lies in one of them
  bool has_part_written = false;  ///< an earlier part of the operation has written one of them
};
/// `error` as this operation's: an OpError that knows no operation, because it comes from below, gets its name; std::bad_alloc, which may come from the middle
/// of the outputs, is a ResourceExhaustedError. Anything else stays as it is, and so does what there is no memory to say anew.
[[nodiscard]] CROSSDEVICE_EXPORT std::exception_ptr error_of(const std::exception_ptr& error,
                                                             const OperationRecord& operation,
                                                             std::optional<double> timeout_seconds,
                                                             const InputsFate& fate) noexcept;

}  // namespace crossdevice::detail
