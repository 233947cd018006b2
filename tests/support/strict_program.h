// SPDX-License-Identifier: Apache-2.0
/// For test programs that are built twice, the second time with CROSSDEVICE_TESTS_STRICT: that one runs with CROSSDEVICE_STRICT=1, set before the library reads it.
#pragma once

#include <cstdlib>

namespace crossdevice::testing {

#ifdef CROSSDEVICE_TESTS_STRICT
constexpr bool kIsStrict = true;
[[maybe_unused]] inline const int kStrictIsSet =
    ::setenv("CROSSDEVICE_STRICT", "1", /*overwrite=*/1);
#else
constexpr bool kIsStrict = false;
#endif

}  // namespace crossdevice::testing
