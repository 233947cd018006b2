// SPDX-License-Identifier: Apache-2.0
/// The table on standard output, in nccl-tests' layout.
#pragma once

#include <string>

#include "collective/row.h"

namespace crossdevice::bench {

enum class ShowPercentiles : bool { NO, YES };
/// The column of ncclAllReduce by itself, on GPUs.
enum class ShowRawNccl : bool { NO, YES };

/// The three lines above the rows.
[[nodiscard]] std::string table_head(ShowPercentiles percentiles,
                                     ShowRawNccl raw_nccl = ShowRawNccl::NO);
/// One line.
[[nodiscard]] std::string table_line(const RowPair& rows, ShowPercentiles percentiles,
                                     ShowRawNccl raw_nccl = ShowRawNccl::NO);

}  // namespace crossdevice::bench
