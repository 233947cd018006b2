// SPDX-License-Identifier: Apache-2.0
/// Sizes in bytes as people read them.
#pragma once

#include <cstddef>
#include <string>

#include "crossdevice/core/export.h"

namespace crossdevice {

/// "1 byte", "512 bytes", "97.5 MiB", "64 MiB": binary units, no decimals where the unit divides
/// the size, else one, rounded to nearest ("1.0 MiB" is about a MiB, "1 MiB" is exactly one).
[[nodiscard]] CROSSDEVICE_EXPORT std::string format_bytes(std::size_t size_bytes);

}  // namespace crossdevice
