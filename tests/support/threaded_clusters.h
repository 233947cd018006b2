// SPDX-License-Identifier: Apache-2.0
/// The workers of a cluster as threads of one process, which have met over loopback.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/environment_cluster_resolver.h"
#include "crossdevice/comm/reserved_port.h"
#include "crossdevice/core/environment.h"

namespace crossdevice::testing {

/// Ends the last worker first: the chief waits for the others to leave.
class ThreadedClusters {
 public:
  explicit ThreadedClusters(int num_workers, const JoinOptions& options = {.timeout_seconds = 60})
      : clusters_(static_cast<std::size_t>(num_workers)) {
    const detail::ReservedPort port;
    for_each_worker([&](int rank) {
      const EnvironmentClusterResolver resolver(
          [&](const std::string& name) -> std::optional<std::string> {
            if (name == kRankVariable) return std::to_string(rank);
            if (name == kNumWorkersVariable) return std::to_string(num_workers);
            if (name == kChiefAddressVariable) return port.address();
            return std::nullopt;
          });
      clusters_[static_cast<std::size_t>(rank)] = Cluster::join(resolver, options);
    });
  }
  ~ThreadedClusters() {
    while (!clusters_.empty()) clusters_.pop_back();
  }
  ThreadedClusters(const ThreadedClusters&) = delete;
  ThreadedClusters& operator=(const ThreadedClusters&) = delete;

  [[nodiscard]] const std::shared_ptr<Cluster>& of(int rank) const {
    return clusters_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] int size() const { return static_cast<int>(clusters_.size()); }

  /// `work(rank)` on a thread each; rethrows what one of them threw.
  template <class Work>
  void for_each_worker(Work work) const {
    std::vector<std::exception_ptr> errors(clusters_.size());
    std::vector<std::thread> threads;
    threads.reserve(clusters_.size());
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          work(rank);
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
    }
    for (std::thread& each : threads) each.join();
    for (const std::exception_ptr& each : errors) {
      if (each) std::rethrow_exception(each);
    }
  }

 private:
  std::vector<std::shared_ptr<Cluster>> clusters_;
};

}  // namespace crossdevice::testing
