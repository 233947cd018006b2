// SPDX-License-Identifier: Apache-2.0
/// Reductions, copies and concatenations of values wherever their components lie: on hosts, on GPUs, or some here and some there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "crossdevice/collective/nccl_reduce.h"
#include "crossdevice/collective/pack.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/device.h"
#include "crossdevice/ops/values.h"

#include "ops/detail/active_operation.h"
#include "ops/detail/host_reduce.h"

namespace crossdevice::detail {

/// Where components lie.
enum class Placement : std::uint8_t { HOSTS, GPUS, MIXED };
[[nodiscard]] Placement placement_of(const Devices& inputs, const Devices& outputs);

/// Who reduces, and in which association.
struct ReduceRoute {
  std::size_t first_group = 0;  ///< see ReducePass
  /// The device that reduces, of those the components lie on; nothing: all of the outputs', each a part. Hosts have one memory, so it says nothing there.
  std::optional<Device> reducer = std::nullopt;
  /// The call itself waits for the GPUs, and throws what goes wrong there: nobody else is to be told.
  bool is_waited_for = false;
};

/// A batch's dense values of one placement; for `nccl` all of its devices, in its order.
struct ReduceBatch {
  std::span<const ReduceItem> items{};
  std::span<const Pack> packs{};
  std::size_t bytes_per_pack = 0;  ///< what the packs were cut by, if by that
  Placement placement = Placement::HOSTS;
  NcclReducer* nccl = nullptr;    ///< null: our kernels reduce
  std::uint64_t fingerprint = 0;  ///< see NcclReduceRequest
  std::string_view kind{};        ///< the same
};

/// What an operation is called on GPUs; its later failures are kept for the ops object's next call, unless the call waits for it.
[[nodiscard]] GpuOperation gpu_operation(ActiveOperation& active, bool is_waited_for = false);

// All of them: errors as the engines', DeadlineExceededError, CancelledError. On GPUs they return after enqueueing; where hosts and GPUs are mixed they
// wait for what goes to hosts.

/// One value.
void reduce_components(ReduceOp op, const ReduceRoute& route, const PerReplica& value,
                       const Mirrored& result, ActiveOperation& active);
/// A batch; each item is announced to `active` when it is complete, on GPUs when it is enqueued.
void reduce_batch(ReduceOp op, const ReduceRoute& route, const ReduceBatch& batch,
                  ActiveOperation& active);
/// The same bytes into every tensor of `result`.
void broadcast_component(const Tensor& source, const Mirrored& result, ActiveOperation& active);
/// `sum` divided by `count`, in the dtype of `result` (that of a MEAN of sum's dtype), into every tensor of `result`.
void divide_component(const Tensor& sum, std::size_t count, const Mirrored& result,
                      ActiveOperation& active);
/// The components one after the other along `axis`.
void gather_components(const PerReplica& value, std::size_t axis, const Mirrored& result,
                       ActiveOperation& active);

}  // namespace crossdevice::detail
