// SPDX-License-Identifier: Apache-2.0
/// The engine of workers on several machines, several on most of them: in each other's memory on one machine, by messages between machines.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "crossdevice/collective/collective_engine.h"
#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/transport.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// For each rank, a number of its machine: equal where ranks share one.
[[nodiscard]] CROSSDEVICE_EXPORT std::vector<int> machines_of(const Cluster& cluster);
/// Several machines, none with more than twice as many workers as another, and at least three workers for two machines.
[[nodiscard]] CROSSDEVICE_EXPORT bool has_two_levels(std::span<const int> machines);

/// With H machines, of which the smallest has L workers, a worker's column is those that have its place on their machines; where a machine has more than L, its
/// last ones are in none. An all-reduce of more than 8 KiB (of one worker's inputs): each worker of a column reduces an L-th part of its machine's inputs
/// where they lie, the columns all-reduce these parts at the same time, each its own, and each worker copies the results from those on its machine. A
/// smaller one: each worker reduces all of its machine's inputs, and sends that to who has its place on each other machine, counted round. Everything
/// else, deterministic reductions, and the mean of integers: TransportCollectives.
///
/// Memory   host tensors; inputs from a pool are read where they lie, others through a copy of up to 64 MiB at a time of each of a worker's inputs. Nobody
///          writes into another worker's memory. Besides a buffer of an L-th of 64 MiB at most.
/// Order    values are combined by place on a machine, then by machine as the column's algorithm does; all workers get the same bits.
/// Arithmetic  float16, bfloat16 and float8 are rounded after each level. MEAN divides the complete sum once.
/// Threads  as the others. Waiting for a worker on the same machine looks after the messages of others, too.
/// Cost     S bytes: 2 (H - 1)/H S/L leave each worker of a column and so 2 (H - 1)/H S each machine, where TransportCollectives' ring has 2 (n - 1)/n S per worker,
///          of which all that go to other machines share a link; and 4 meetings on the machine, up to 8 KiB one.
class CROSSDEVICE_EXPORT TwoLevelCollectives final : public CollectiveEngine {
 public:
  /// Up to here one meeting is worth that every worker of a machine reduces all, and sends all.
  static constexpr std::size_t kSmallBytes = std::size_t{8} << 10;

  /// Collective. `transport` connects the members of `cluster`. Where a machine does not let its workers share memory, all reductions take the transport,
  /// and the log says so once.
  ///
  /// Errors   ValueError: has_two_levels(machines) is false.
  TwoLevelCollectives(const std::shared_ptr<Cluster>& cluster, std::unique_ptr<Transport> transport,
                      std::span<const int> machines, const Deadline& deadline = meeting_deadline());
  ~TwoLevelCollectives() override;

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

  /// "2 workers on each of 2 machines: shared memory, then ring of 2, 540.0 us expected (shuffle 540.0; all workers by messages: ring 810.0, ...)".
  [[nodiscard]] std::string explain_all_reduce(std::size_t size_bytes) const override;
  [[nodiscard]] std::vector<PackCandidate> rank_pack_sizes() const override;
  /// Payload bytes and messages so far.
  [[nodiscard]] TransportCounters counters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace crossdevice
