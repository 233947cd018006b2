// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/reduction_to_one_device.h"

#include <typeinfo>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"

#include "ops/detail/active_operation.h"
#include "ops/detail/batch_groups.h"
#include "ops/detail/component_reduce.h"
#include "ops/detail/sparse_reduce.h"

namespace crossdevice {
namespace {

/// The caller's sum of all components, checked, then divided for MEAN: a tensor that nobody else holds.
Tensor accumulate(const ReductionToOneDeviceOptions& options, ReduceOp op,
                  const PerReplica& value) {
  if (op != ReduceOp::SUM && op != ReduceOp::MEAN) {
    throw ValueError(fmt::format("accumulation_fn sums: it cannot do {}", to_string(op)));
  }
  const Tensor& first = value.values()[0];
  Tensor sum = options.accumulation_fn(value.values());
  if (!sum || sum.dtype() != first.dtype() || !(sum.shape() == first.shape())) {
    throw ValueError(fmt::format("accumulation_fn must return {} {}, it returned {}",
                                 to_string(first.dtype()), first.shape().to_string(),
                                 sum ? sum.to_string() : "no tensor"));
  }
  sum.readiness().wait();
  return sum;
}

}  // namespace

ReductionToOneDevice::ReductionToOneDevice()
    : ReductionToOneDevice(ReductionToOneDeviceOptions()) {}

ReductionToOneDevice::ReductionToOneDevice(ReductionToOneDeviceOptions options)
    : options_(std::move(options)) {
  if (options_.reduce_to_device.has_value()) options_.reduce_to_device->require_present();
  if (options_.accumulation_fn) {
    log_once("ReductionToOneDevice with accumulation_fn", LogSeverity::INFO,
             "ReductionToOneDevice: by accumulation_fn, since the program gave one");
  } else {
    log_once("ReductionToOneDevice", LogSeverity::INFO,
             "ReductionToOneDevice: direct, all components in one pass, since one device reduces; "
             "gpu_kernels where values lie on GPUs");
  }
}

Mirrored ReductionToOneDevice::reduce_implementation(ReduceOp op, const PerReplica& value,
                                                     const Destinations& destinations,
                                                     const CommunicationOptions& /*options*/) {
  detail::ActiveOperation& active = active_operation();
  if (value.is_sparse()) {
    const Device& target = options_.reduce_to_device.value_or(destinations.devices()[0]);
    return detail::sparse_reduce(op, value, target, destinations, active);
  }
  if (!options_.accumulation_fn) {
    Mirrored result =
        destinations.make_result(result_dtype(op, value.dtype()), value.shape(), value);
    detail::reduce_components(
        op, {.reducer = options_.reduce_to_device.value_or(destinations.devices()[0])}, value,
        result, active);
    return result;
  }
  const Tensor sum = accumulate(options_, op, value);
  Mirrored result = destinations.make_result(result_dtype(op, value.dtype()), value.shape(), value);
  if (op == ReduceOp::SUM) {
    detail::broadcast_component(sum, result, active);
  } else {
    detail::divide_component(sum, value.size(), result, active);
  }
  return result;
}

std::vector<Mirrored> ReductionToOneDevice::batch_reduce_implementation(
    ReduceOp op, std::span<const ValueDestinationPair> pairs, const CommunicationOptions& options) {
  if (typeid(*this) == typeid(ReductionToOneDevice)) {
    return batch_reduce_together(op, pairs, options);
  }
  return CrossDeviceOps::batch_reduce_implementation(op, pairs, options);
}

std::vector<Mirrored> ReductionToOneDevice::batch_reduce_together(
    ReduceOp op, std::span<const ValueDestinationPair> pairs, const CommunicationOptions& options) {
  if (pairs.size() == 1 || options_.accumulation_fn) {
    return CrossDeviceOps::batch_reduce_implementation(op, pairs, options);
  }
  const auto reducer_of = [this](const ValueDestinationPair& pair) {
    return options_.reduce_to_device.value_or(pair.destinations.devices()[0]);
  };
  return detail::reduce_in_groups(
      op, pairs, {}, active_operation(),
      [&](const ValueDestinationPair& pair) {
        detail::BatchKind kind;
        kind.placement = detail::placement_of(pair.value.devices(), pair.destinations.devices());
        if (kind.placement != detail::Placement::HOSTS) kind.reducer = reducer_of(pair);
        return kind;
      },
      reducer_of);
}

}  // namespace crossdevice
