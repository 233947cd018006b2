// SPDX-License-Identifier: Apache-2.0
/// One of the workers that a probe starts.
#pragma once

#include <string>
#include <string_view>

namespace crossdevice::doctor {

/// The `path` of workers whose values lie in memory that the library has not given.
inline constexpr std::string_view kOwnMemory = "own memory";

/// The `path` of workers of which some share memory and some exchange messages.
inline constexpr std::string_view kTwoLevels = "two levels";

/// Meets the others, reduces with them, and writes, if it is the first, what it has found to standard output; the exit code. `path`, for the report: what carries
/// the bytes, "shared memory".
///
/// Errors   what the library throws.
[[nodiscard]] int run_worker(const std::string& path);

}  // namespace crossdevice::doctor
