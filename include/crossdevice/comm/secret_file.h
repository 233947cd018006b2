// SPDX-License-Identifier: Apache-2.0
/// The file with the secret that the workers of a job prove to each other (CROSSDEVICE_SECRET_FILE in core/environment.h).
#pragma once

#include <string>

#include "crossdevice/core/export.h"

namespace crossdevice::detail {

/// What the file holds, without a final newline.
///
/// Errors   ValueError: the file cannot be read, is no regular file, belongs neither to this process's user nor to root, is not for its owner only (mode 0600 or
///          0400), or holds fewer than 16 bytes or more than 4096.
[[nodiscard]] CROSSDEVICE_EXPORT std::string read_secret(const std::string& file);

}  // namespace crossdevice::detail
