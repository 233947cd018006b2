// SPDX-License-Identifier: Apache-2.0
/// Sizes as nccl-tests writes them: "8", "64K", "128M", "1G", with binary multiples.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace crossdevice::programs {

/// Also takes a fraction ("1.5M"), lower case, and a "B" or "iB" at the end ("64MiB"). A fraction of a byte is cut off.
///
/// Errors   ArgumentError: not a size, negative, or 2^63 and more.
[[nodiscard]] std::size_t parse_byte_size(std::string_view text);

/// "8 B", "64 KiB", "1.5 MiB": the largest unit that leaves at most one digit behind the point.
[[nodiscard]] std::string format_byte_size(std::size_t size_bytes);

}  // namespace crossdevice::programs
