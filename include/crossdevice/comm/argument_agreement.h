// SPDX-License-Identifier: Apache-2.0
/// What workers do first when they make something together: each says with which arguments, or what is wrong with its own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// Everybody's arguments as text, by rank. `describe` checks this worker's own, and returns their text or throws what is wrong with them, which is then
/// an error on all workers: nobody waits for one that cannot come.
///
/// Ranks    collective: every worker comes here, whatever it was given.
/// Errors   ValueError: `describe` threw on some workers; on all of them, with the ranks and what each threw; ResourceExhaustedError where that was
///          std::bad_alloc. Where the others do not come, this worker's own trouble is thrown alone. Else as Cluster::all_gather_bytes().
[[nodiscard]] CROSSDEVICE_EXPORT std::vector<std::string> agree_on_arguments(
    Cluster& cluster, const std::function<std::string()>& describe,
    const Deadline& deadline = meeting_deadline());

}  // namespace crossdevice
