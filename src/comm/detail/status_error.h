// SPDX-License-Identifier: Apache-2.0
/// From a status code, as it travels between workers, to the error of that kind.
#pragma once

#include <string>
#include <vector>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {

[[noreturn]] void throw_status(StatusCode code, const std::string& text,
                               std::vector<RankInfo> culprits);

}  // namespace crossdevice::detail
