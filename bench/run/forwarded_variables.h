// SPDX-License-Identifier: Apache-2.0
/// Which variables of this process's environment go to workers on other hosts.
#pragma once

#include <string>
#include <vector>

namespace crossdevice::run {

/// CROSSDEVICE_* (but for CROSSDEVICE_HOST_ID, which every host has for itself) and NCCL_* of `inherited`, and then what `requests` (-x) name: "NAME" as
/// it is in `inherited`, or "NAME=VALUE". Each as "NAME=value".
///
/// Errors   programs::ArgumentError: an empty name; "NAME" that is not set.
[[nodiscard]] std::vector<std::string> forwarded_variables(
    const char* const* inherited, const std::vector<std::string>& requests);

/// The requests alone.
///
/// Errors   as above.
[[nodiscard]] std::vector<std::string> requested_variables(
    const char* const* inherited, const std::vector<std::string>& requests);

/// `inherited` with `variables` in place of those of the same name; of several the last counts.
[[nodiscard]] std::vector<std::string> with_variables(const char* const* inherited,
                                                      const std::vector<std::string>& variables);

}  // namespace crossdevice::run
