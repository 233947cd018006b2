// SPDX-License-Identifier: Apache-2.0
// The errors of checked integers.
#include "crossdevice/core/int64.h"

#include <fmt/format.h>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {

void throw_does_not_fit(std::uint64_t value) {
  throw ValueError(fmt::format("{} does not fit in a signed 64-bit integer", value));
}

void throw_overflow(std::int64_t a, const char* operation, std::int64_t b) {
  throw ValueError(fmt::format("{} {} {} overflows a signed 64-bit integer", a, operation, b));
}

}  // namespace crossdevice::detail
