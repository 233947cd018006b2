// SPDX-License-Identifier: Apache-2.0
/// What an operation's error calls it, where those who found it know only its number.
#pragma once

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

}  // namespace crossdevice::detail
