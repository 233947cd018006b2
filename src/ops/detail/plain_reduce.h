// SPDX-License-Identifier: Apache-2.0
/// The everyday reduce(), found by one look. Of the smallest values the checks of validation.h would cost more than the reduction.
#pragma once

#include <cstdint>

#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/tensor.h"
#include "crossdevice/ops/destinations.h"
#include "crossdevice/ops/values.h"

namespace crossdevice::detail {

enum class PlainReduce : std::uint8_t { NO, APART, IN_PLACE };

/// Whether it is one component that is reduced into one buffer on its own device, of the same dtype and shape, which is that very tensor (IN_PLACE) or
/// shares no byte with it (APART), and nothing is under way on either. If so, require_reducible() has nothing to say but for devices that are not present,
/// require_no_overlaps() returns whether it is IN_PLACE, and wait_until_ready() does not wait. NO says nothing.
[[nodiscard]] inline PlainReduce look_for_plain_reduce(ReduceOp op, const PerReplica& value,
                                                       const Destinations& destinations) {
  const DistributedValues* const outputs = destinations.outputs();
  // Sparse values have no dense components.
  if (outputs == nullptr || outputs->values().size() != 1 || value.values().size() != 1 ||
      !(value.devices() == destinations.devices())) {
    return PlainReduce::NO;
  }
  const Tensor& from = value.values()[0];
  const Tensor& to = outputs->values()[0];
  if (op > ReduceOp::PROD || !is_supported(op, from.dtype()) ||
      result_dtype(op, from.dtype()) != from.dtype() || to.is_read_only() ||
      !to.readiness().is_ready()) {
    return PlainReduce::NO;
  }
  if (from.is_same(to)) return to.size_bytes() > 0 ? PlainReduce::IN_PLACE : PlainReduce::APART;
  const auto* const from_begin = static_cast<const char*>(from.data());
  const auto* const to_begin = static_cast<const char*>(to.data());
  const bool is_apart =
      from_begin + from.size_bytes() <= to_begin || to_begin + to.size_bytes() <= from_begin;
  const bool is_alike = to.dtype() == from.dtype() && to.shape() == from.shape();
  return is_apart && is_alike && from.readiness().is_ready() ? PlainReduce::APART : PlainReduce::NO;
}

}  // namespace crossdevice::detail
