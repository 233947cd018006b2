// SPDX-License-Identifier: Apache-2.0
/// Who measures together: this process alone, or the workers of a cluster.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/device/device.h"
#include "crossdevice/ops/cross_device_ops.h"

#include "collective/meeting.h"

namespace crossdevice::bench {

/// Where one worker stands among all.
struct TeamPlace {
  std::size_t rank = 0;
  std::size_t num_workers = 1;
  std::size_t num_hosts = 1;
  std::size_t num_local_workers = 1;
};

/// Ranks    line_up(), slowest() and total() are collective: every worker makes the same calls in the same order.
/// Errors   as those of the meeting.
/// Threads  one at a time.
class Team {
 public:
  /// This process alone.
  Team() = default;
  /// The workers of `cluster`; `ops` are among their `devices`, which are this worker's.
  Team(std::shared_ptr<Cluster> cluster, std::shared_ptr<CrossDeviceOps> ops,
       const Devices& devices);
  /// Those who meet there.
  Team(std::shared_ptr<Meeting> meeting, const TeamPlace& place)
      : meeting_(std::move(meeting)), place_(place) {}

  [[nodiscard]] std::size_t rank() const { return place_.rank; }
  [[nodiscard]] std::size_t num_workers() const { return place_.num_workers; }
  /// How many machines they are on; each network namespace counts as one.
  [[nodiscard]] std::size_t num_hosts() const { return place_.num_hosts; }
  /// Of this machine.
  [[nodiscard]] std::size_t num_local_workers() const { return place_.num_local_workers; }
  /// The one that prints and writes files.
  [[nodiscard]] bool is_first() const { return place_.rank == 0; }

  /// Returns on all workers at about the same time: within the time of one small reduction.
  void line_up();
  /// The largest of all workers' samples, place by place; equally many on every worker.
  [[nodiscard]] std::vector<double> slowest(std::vector<double> samples);
  /// The sum of all workers' counts.
  [[nodiscard]] std::size_t total(std::size_t count);

 private:
  std::shared_ptr<Meeting> meeting_;  // none: alone
  TeamPlace place_;
};

}  // namespace crossdevice::bench
