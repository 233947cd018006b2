// SPDX-License-Identifier: Apache-2.0
/// Where this process lacks something: as the library's own error, whoever noticed it.
#pragma once

#include <string_view>
#include <system_error>

#include "crossdevice/core/export.h"

namespace crossdevice::detail {

/// Whether memory, descriptors or threads are exhausted.
[[nodiscard]] CROSSDEVICE_EXPORT bool is_want(const std::error_code& error);

/// For the handler at a public function's end: throws what is handled, but std::bad_alloc, and std::system_error of a want, as ResourceExhaustedError that
/// says what this process was doing.
[[noreturn]] CROSSDEVICE_EXPORT void rethrow_own_want(std::string_view doing);

}  // namespace crossdevice::detail
