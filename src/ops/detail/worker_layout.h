// SPDX-License-Identifier: Apache-2.0
/// Which components of a value belong to which worker, and the schedules over them.
#pragma once

#include <cstddef>
#include <vector>

#include "crossdevice/collective/schedule.h"
#include "crossdevice/device/device.h"
#include "crossdevice/ops/all_reduce_spec.h"

namespace crossdevice::detail {

/// The components of a value, numbered in value order, by worker. Workers that have none are left out.
struct WorkerLayout {
  std::size_t num_components = 0;
  /// Each worker's components, in value order; the workers in the order in which they appear in the value.
  std::vector<std::vector<std::size_t>> workers;
  /// Numbers of `workers`, in the order in which the op lists them: it decides who owns parts of tensors.
  std::vector<std::size_t> listed;
};

/// Errors   ValueError: a device that has none of the workers' labels (job, replica, task).
[[nodiscard]] WorkerLayout make_worker_layout(const Devices& worker_devices,
                                              const Devices& components);

/// What a schedule is made for.
struct WorkerScheduleRequest {
  const AllReduceSpecTuple& algorithm;  ///< valid
  int num_gpus_per_worker =
      0;  ///< how many devices of a worker psgpu may take as owners; at least one each
  std::size_t num_elements = 0;
  std::size_t turn =
      0;  ///< counts the tensors that one call reduces: pscpu and psgpu take other owners for each
};

[[nodiscard]] Schedule make_worker_schedule(const WorkerLayout& layout,
                                            const WorkerScheduleRequest& request);

/// Of a two-level algorithm the upper level alone: among layout.workers, in their order.
[[nodiscard]] Schedule make_upper_schedule(const WorkerLayout& layout,
                                           const WorkerScheduleRequest& request);

}  // namespace crossdevice::detail
