// SPDX-License-Identifier: Apache-2.0
/// What workers can do together, whatever carries their bytes. Kinds: SharedCollectives, TransportCollectives,
/// TwoLevelCollectives.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "crossdevice/collective/collective_request.h"
#include "crossdevice/collective/pack_choice.h"
#include "crossdevice/core/export.h"
#include "crossdevice/device/tensor.h"

namespace crossdevice {

/// Everybody's tensors, by rank: [rank][tensor].
using RemoteTensors = std::vector<std::vector<RemoteTensor>>;

/// Ranks    collective: every worker makes the same calls in the same order, with the same ops, dtypes and numbers of elements (but for share()).
/// Memory   host tensors, contiguous. Outputs are no views of constant memory.
/// Errors   ValueError: tensors that do not fit together, an op that their dtype does not have, a read-only output, a root that is no rank; nothing has
///          been touched, and the others wait until this worker makes the call properly, or for their deadline. UnavailableError (a worker is gone),
///          AbortedError, DeadlineExceededError (names who did not come), InternalError (workers make different calls; says which), on every worker
///          that is in the call, and before an output byte is written where calls differ. inputs_intact() is false where outputs that are
///          inputs may have been written. Then the object is broken: every later call says since when, and blames whom that blamed.
/// Threads  one at a time.
class CROSSDEVICE_EXPORT CollectiveEngine {
 public:
  virtual ~CollectiveEngine();
  CollectiveEngine(const CollectiveEngine&) = delete;
  CollectiveEngine& operator=(const CollectiveEngine&) = delete;

  /// outputs = op(all workers' inputs), for each value.
  virtual void all_reduce(const CollectiveRequest& request,
                          std::span<const CollectiveValue> values) = 0;
  /// `output` = this rank's part of op(all inputs), which are as many times as long as there are workers.
  virtual void reduce_scatter(const CollectiveRequest& request, const Tensor& input,
                              const Tensor& output) = 0;
  /// `output` = all inputs by rank.
  virtual void all_gather(const CollectiveRequest& request, const Tensor& input,
                          const Tensor& output) = 0;
  /// `tensor` = the root's.
  virtual void broadcast(const CollectiveRequest& request, const Tensor& tensor, int root) = 0;
  /// On the root `output` = op(all inputs); elsewhere it is not looked at.
  virtual void reduce(const CollectiveRequest& request, const Tensor& input, const Tensor& output,
                      int root) = 0;
  /// On the root `output` = all inputs by rank; elsewhere it is not looked at.
  virtual void gather(const CollectiveRequest& request, const Tensor& input, const Tensor& output,
                      int root) = 0;
  /// Returns when all have called it.
  virtual void barrier(const CollectiveRequest& request) = 0;

  /// Shows `tensors` to the others and `use` everybody's, which may be read until it returns. Every worker shows any number of tensors of any shape.
  /// What `use` throws is thrown when the operation has ended.
  virtual void share(const CollectiveRequest& request, std::span<const Tensor> tensors,
                     const std::function<void(const RemoteTensors& all)>& use) = 0;

  /// How an all-reduce of so many bytes per worker would be done, and what else could be: one line for people.
  [[nodiscard]] virtual std::string explain_all_reduce(std::size_t size_bytes) const = 0;
  /// How large packs should be that leave one after the other, the choice first: see pack_choice.h. Nothing where no links are known.
  [[nodiscard]] virtual std::vector<PackCandidate> rank_pack_sizes() const = 0;

 protected:
  CollectiveEngine() = default;
};

}  // namespace crossdevice
