// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/staged_value.h"

#include <utility>
#include <vector>

#include "crossdevice/core/error.h"
#include "crossdevice/core/inline_vector.h"
#include "crossdevice/device/copy.h"

#include "ops/detail/stream_wait.h"

namespace crossdevice::detail {

StagedValue::StagedValue(const PerReplica& value, const Mirrored& result, const Device& target,
                         const ActiveOperation& active)
    : target_(target) {
  InlineVector<Tensor, 8> inputs;
  StreamWait(active).run([&](const WaitLimit& limit) {
    for (const Tensor& tensor : value.values()) {
      inputs.push_back(is_there(tensor) ? tensor : copy_to_device(tensor, target_, limit));
    }
  });
  InlineVector<Tensor, 8> outputs;
  for (const Tensor& tensor : result.values()) {
    if (is_there(tensor)) {
      outputs.push_back(tensor);
    } else if (!block_) {
      block_ = Tensor::empty(tensor.dtype(), tensor.shape(), target_);
      outputs.push_back(block_);
    }
  }
  inputs_ = PerReplica(inputs.view());
  outputs_ = Mirrored(outputs.view());
}

bool StagedValue::is_there(const Tensor& tensor) const {
  return tensor.device().is_host() == target_.is_host();
}

void StagedValue::put_back(const Mirrored& result, const ActiveOperation& active) const {
  try {
    StreamWait(active, StreamWait::When::BEHIND_OTHERS).run([&](const WaitLimit& limit) {
      for (const Tensor& tensor : result.values()) {
        if (!is_there(tensor)) copy(tensor, block_, limit);
      }
    });
  } catch (const OpError& error) {
    if (active.is_in_place()) throw_with_inputs_changed(error);
    throw;
  }
}

namespace {

PerReplica copied_to_hosts(const PerReplica& value, const WaitLimit& limit) {
  if (value.is_sparse()) {
    std::vector<IndexedSlices> slices;
    slices.reserve(value.size());
    for (const IndexedSlices& part : value.slices()) {
      slices.push_back(part.device().is_host() ? part : copy_to_device(part, "CPU:0", limit));
    }
    return PerReplica(std::move(slices));
  }
  InlineVector<Tensor, 8> tensors;
  for (const Tensor& tensor : value.values()) {
    tensors.push_back(tensor.device().is_host() ? tensor : copy_to_device(tensor, "CPU:0", limit));
  }
  return PerReplica(tensors.view());
}

}  // namespace

PerReplica on_hosts(const PerReplica& value, const ActiveOperation& active) {
  if (value.devices().all_host()) return value;
  return StreamWait(active).run(
      [&](const WaitLimit& limit) { return copied_to_hosts(value, limit); });
}

}  // namespace crossdevice::detail
