// SPDX-License-Identifier: Apache-2.0
/// Which cores each worker of a machine gets, where each is to have its own.
#pragma once

#include <set>

namespace crossdevice::run {

/// Cores in a row for worker `index` of `count`: as many as the others have, or one more. All of them where there are fewer cores than workers.
[[nodiscard]] std::set<int> share_of_cores(const std::set<int>& cores, int index, int count);

}  // namespace crossdevice::run
