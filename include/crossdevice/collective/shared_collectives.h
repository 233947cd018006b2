// SPDX-License-Identifier: Apache-2.0
/// The engine of workers on one machine: everybody reads what it needs where it lies in the others' memory. There is no Transport under it: a message would be a
/// copy of what can be read in place, and a schedule's rounds would each be a meeting where one pass needs two. So what it shares with the transports' engines is
/// the contract of CollectiveEngine, to which one conformance suite holds them all.
#pragma once

#include <memory>
#include <vector>

#include "crossdevice/collective/collective_engine.h"
#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// Memory   as SharedDirectReduce.
/// Order    values are combined by rank, then in their order on a rank; with `deterministic` each rank's own before.
/// Cost     all_reduce: as SharedDirectReduce. Of the others everyone reads what its outputs need, once; two meetings each.
class CROSSDEVICE_EXPORT SharedCollectives final : public CollectiveEngine {
 public:
  /// Collective. Errors   as SharedMemoryGroup.
  explicit SharedCollectives(const std::shared_ptr<Cluster>& cluster,
                             const Deadline& deadline = meeting_deadline());
  ~SharedCollectives() override;

  void all_reduce(const CollectiveRequest& request,
                  std::span<const CollectiveValue> values) override;
  void reduce_scatter(const CollectiveRequest& request, const Tensor& input,
                      const Tensor& output) override;
  void all_gather(const CollectiveRequest& request, const Tensor& input,
                  const Tensor& output) override;
  void broadcast(const CollectiveRequest& request, const Tensor& tensor, int root) override;
  void reduce(const CollectiveRequest& request, const Tensor& input, const Tensor& output,
              int root) override;
  void gather(const CollectiveRequest& request, const Tensor& input, const Tensor& output,
              int root) override;
  void barrier(const CollectiveRequest& request) override;
  void share(const CollectiveRequest& request, std::span<const Tensor> tensors,
             const std::function<void(const RemoteTensors& all)>& use) override;
  [[nodiscard]] std::string explain_all_reduce(std::size_t size_bytes) const override;
  [[nodiscard]] std::vector<PackCandidate> rank_pack_sizes() const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace crossdevice
