// SPDX-License-Identifier: Apache-2.0
/// Who measures together: this process alone, or the workers of a cluster.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/device/device.h"
#include "crossdevice/ops/cross_device_ops.h"
#include "crossdevice/ops/values.h"

namespace crossdevice::bench {

/// Ranks    line_up(), slowest() and total() are collective: every worker makes the same calls in the same order.
/// Errors   as those of the ops and of Cluster.
/// Threads  one at a time.
class Team {
 public:
  /// This process alone.
  Team() = default;
  /// The workers of `cluster`; `ops` are among their `devices`, which are this worker's.
  Team(std::shared_ptr<Cluster> cluster, std::shared_ptr<CrossDeviceOps> ops,
       const Devices& devices);

  [[nodiscard]] std::size_t rank() const { return rank_; }
  [[nodiscard]] std::size_t num_workers() const { return num_workers_; }
  /// How many machines they are on; each network namespace counts as one.
  [[nodiscard]] std::size_t num_hosts() const { return num_hosts_; }
  /// Of this machine.
  [[nodiscard]] std::size_t num_local_workers() const { return num_local_workers_; }
  /// The one that prints and writes files.
  [[nodiscard]] bool is_first() const { return rank_ == 0; }

  /// Returns on all workers at about the same time: within the time of one small reduction.
  void line_up();
  /// The largest of all workers' samples, place by place; equally many on every worker.
  [[nodiscard]] std::vector<double> slowest(std::vector<double> samples);
  /// The sum of all workers' counts.
  [[nodiscard]] std::size_t total(std::size_t count);

 private:
  std::shared_ptr<Cluster> cluster_;  // none: alone
  std::shared_ptr<CrossDeviceOps> ops_;
  std::optional<PerReplica> token_;  // what is reduced to line up
  std::size_t rank_ = 0;
  std::size_t num_workers_ = 1;
  std::size_t num_hosts_ = 1;
  std::size_t num_local_workers_ = 1;
};

}  // namespace crossdevice::bench
