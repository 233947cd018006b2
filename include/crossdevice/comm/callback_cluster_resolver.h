// SPDX-License-Identifier: Apache-2.0
/// Workers that can already exchange bytes: an MPI communicator, for example, is one lambda.
#pragma once

#include "crossdevice/comm/cluster_resolver.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// The caller knows the rank and the number of workers, and has an all-gather; the address of rank 0 travels through it.
///
/// Ranks    the all-gather is called while the workers meet, by every one of them, on the thread that joins.
class CROSSDEVICE_EXPORT CallbackClusterResolver : public ClusterResolver {
 public:
  /// Errors   ValueError: a rank that is not below num_workers, num_workers not in 1 .. 1,000,000, no function.
  CallbackClusterResolver(int rank, int num_workers, AllGatherBytes all_gather);
  ~CallbackClusterResolver() override;

  [[nodiscard]] bool can_all_gather() const override { return true; }

 protected:
  [[nodiscard]] WorkerIdentity identity_implementation() const override;
  void all_gather_implementation(std::span<const std::byte> mine,
                                 std::span<std::byte> all) const override;

 private:
  int rank_;
  int num_workers_;
  AllGatherBytes all_gather_;
};

}  // namespace crossdevice
