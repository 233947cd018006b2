// SPDX-License-Identifier: Apache-2.0
/// The JSON file: an array with one object per row.
#pragma once

#include <span>
#include <string>

#include "collective/row.h"

namespace crossdevice::bench {

[[nodiscard]] std::string json_report(std::span<const Row> rows);

}  // namespace crossdevice::bench
