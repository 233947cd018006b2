// SPDX-License-Identifier: Apache-2.0
/// The engine of workers that reach each other by messages alone: schedules over a transport.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "crossdevice/collective/all_reduce_choice.h"
#include "crossdevice/collective/collective_engine.h"
#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/transport.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

namespace detail {
class TransportGroup;
}

/// Memory   host tensors. From 1 MiB on they are sent and received where they lie; smaller ones travel side by side through a buffer of 32 MiB
///          at most. Nothing is allocated once batches as large have run before.
/// Order    a batch's bits depend on the algorithm and so on sizes, but for `deterministic`: then every element's values are combined by rank, each
///          worker's own before.
/// Threads  all work is done on the calling thread.
/// Cost     an all-reduce takes the algorithm that the links promise to be fastest (all_reduce_choice.h): they are measured when the object is made, in
///          a few rounds of up to 2 MiB and no longer than a second where links are not very slow, unless CROSSDEVICE_TUNING_FILE of rank 0 says what they are,
///          or what to take for every size. Before outputs are written
///          where they lie, ceil(log2 n) rounds of
///          messages without bytes make sure that all mean the same. share() holds all tensors of all workers in memory at once.
class CROSSDEVICE_EXPORT TransportCollectives final : public CollectiveEngine {
 public:
  /// Collective. `transport` connects the members of `cluster`, which carries what errors say.
  TransportCollectives(std::shared_ptr<Cluster> cluster, std::unique_ptr<Transport> transport,
                       const Deadline& deadline = meeting_deadline());
  /// For engines that have more levels: in operations of a group that others begin, too.
  explicit TransportCollectives(std::shared_ptr<detail::TransportGroup> group);
  ~TransportCollectives() override;

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

  /// "exchange, 210.0 us expected (shuffle 420.0, rechd 840.0, ring 1260.0)".
  [[nodiscard]] std::string explain_all_reduce(std::size_t size_bytes) const override;
  [[nodiscard]] std::vector<PackCandidate> rank_pack_sizes() const override;
  [[nodiscard]] const AllReduceTuning& tuning() const;
  /// Payload bytes and messages so far.
  [[nodiscard]] TransportCounters counters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace crossdevice
