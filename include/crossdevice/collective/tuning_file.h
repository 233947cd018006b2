// SPDX-License-Identifier: Apache-2.0
/// The file with a job's tuning (CROSSDEVICE_TUNING_FILE in core/environment.h).
#pragma once

#include "crossdevice/collective/all_reduce_choice.h"
#include "crossdevice/core/export.h"

namespace crossdevice::detail {

/// What this process's file says, which is a job's where this is its rank 0; nothing where none is named.
///
/// Errors   ValueError: it cannot be read, is larger than 64 KiB, or is no tuning. ResourceExhaustedError: no descriptor, no memory is left to open it.
[[nodiscard]] CROSSDEVICE_EXPORT AllReduceTuning read_tuning_file();

}  // namespace crossdevice::detail
