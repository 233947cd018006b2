// SPDX-License-Identifier: Apache-2.0
/// One of the workers that a probe starts.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/device/device.h"

#include "doctor/finding.h"

namespace crossdevice::doctor {

/// The deadline of everything that they do, below the probe's own: the library's text says more than a kill.
inline constexpr double kWorkerSeconds = 50;

/// The `path` of workers whose values lie in memory that the library has not given.
inline constexpr std::string_view kOwnMemory = "own memory";

/// The `path` of workers of which some share memory and some exchange messages.
inline constexpr std::string_view kTwoLevels = "two levels";

/// The `path` of workers with a GPU each.
inline constexpr std::string_view kNcclWorkers = "NCCL workers";

/// What this worker has of `path`: CPU:0, or one of the GPUs that are shared out among the workers.
///
/// Ranks    collective.
/// Errors   as default_devices().
[[nodiscard]] Device device_of_worker(const std::string& path, Cluster& cluster);

/// Reduces with the other workers; what is found, which the first of them reports.
///
/// Ranks    collective.
/// Errors   what the library throws.
[[nodiscard]] Finding reduce_among_workers(const std::string& path,
                                           const std::shared_ptr<Cluster>& cluster,
                                           const Device& device);

/// Meets the others, reduces with them, and writes, if it is the first, what it has found to standard output; the exit code. `path`, for the report: what carries
/// the bytes, "shared memory".
///
/// Errors   what the library throws.
[[nodiscard]] int run_worker(const std::string& path);

}  // namespace crossdevice::doctor
