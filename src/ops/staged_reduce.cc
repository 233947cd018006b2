// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/staged_reduce.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/gpu_event.h"

#include "ops/detail/staged_value.h"
#include "ops/detail/stream_wait.h"

namespace crossdevice::detail {

void await_streams(std::span<const Tensor> tensors, const ActiveOperation& active) {
  for (const Tensor& tensor : tensors) {
    if (tensor.device().is_host()) continue;
    StreamWait(active).run([&](const WaitLimit& limit) {
      try {
        GpuEvent::record(GpuDevice::of(tensor.device()), gpu_stream_of(tensor)).wait(limit);
      } catch (const DeadlineExceededError& error) {
        throw DeadlineExceededError(fmt::format("the host, which reduces it, waits for {}: {}",
                                                tensor.device().short_name(), error.what()));
      }
    });
  }
}

void require_not_captured(const ReduceItem& item) {
  const auto require = [](const Tensor& tensor) {
    if (!is_captured(tensor)) return;
    throw FailedPreconditionError(
        fmt::format("{} is being captured into a graph, and the host, which reduces it, would wait "
                    "for it",
                    tensor.to_string()));
  };
  std::ranges::for_each(item.value->values(), require);
  std::ranges::for_each(item.result->values(), require);
}

void staged_scheduled_reduce(ReduceOp op, std::span<const ReduceItem> items,
                             std::span<const ScheduledPack> packs, ActiveOperation& active) {
  active.require_time_left();
  std::vector<StagedValue> staged;
  staged.reserve(items.size());
  std::vector<ReduceItem> on_hosts;
  on_hosts.reserve(items.size());
  for (const ReduceItem& item : items) {
    const StagedValue& copies =
        staged.emplace_back(*item.value, *item.result, Device("CPU:0"), active);
    on_hosts.push_back({&copies.inputs(), &copies.outputs(), PendingBatchState::kNoItem});
  }
  host_scheduled_reduce(op, on_hosts, packs, active);
  for (std::size_t i = 0; i < items.size(); ++i) {
    staged[i].put_back(*items[i].result, active);
    active.complete_item(items[i].item);
  }
}

}  // namespace crossdevice::detail
