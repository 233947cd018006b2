// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/validation.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/scratch_lease.h"

#include "ops/detail/nccl_fallback.h"

namespace crossdevice::detail {
namespace {

std::string where(BatchPosition position) {
  return position.count > 1 ? fmt::format(" (value {} of {})", position.index, position.count) : "";
}

[[noreturn]] void throw_gradients_differ(const Tensor& first, std::size_t replica,
                                         const Tensor& other, BatchPosition position) {
  throw ValueError(fmt::format("gradients differ{}: replica 0 {} {}, replica {} {} {}",
                               where(position), to_string(first.dtype()), first.shape().to_string(),
                               replica, to_string(other.dtype()), other.shape().to_string()));
}

/// `present` are known to be there.
void require_destinations(const Destinations& destinations, const Devices& present = {}) {
  if (!(destinations.devices() == present)) destinations.devices().require_present();
  if (destinations.devices().has_duplicates()) {
    throw ValueError(
        fmt::format("destinations name a device twice: {}", destinations.devices().to_string()));
  }
}

void require_components(const PerReplica& value, BatchPosition position) {
  if (value.empty()) {
    throw ValueError(
        fmt::format("a value must be non-empty: it has no components{}", where(position)));
  }
  value.devices().require_present();
}

[[noreturn]] void throw_read_only(std::size_t i, const Tensor& output, BatchPosition position) {
  throw ValueError(
      fmt::format("output {}{} is read-only: {}", i, where(position), output.to_string()));
}

/// Where a value is its own output, which is alike and of the result's dtype by then.
void require_writable(const DistributedValues& value, BatchPosition position) {
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (value.values()[i].is_read_only()) throw_read_only(i, value.values()[i], position);
  }
}

/// `expected` is what the result will be; `alike`: tensors that are known to be such.
void require_outputs(const Destinations& destinations, DType expected, const Shape& shape,
                     BatchPosition position, std::span<const Tensor> alike = {}) {
  const DistributedValues* outputs = destinations.outputs();
  if (outputs == nullptr) return;
  if (outputs->is_sparse()) throw ValueError("outputs must be dense tensors, not IndexedSlices");
  for (std::size_t i = 0; i < outputs->size(); ++i) {
    const Tensor& output = outputs->values()[i];
    const bool is_alike = i < alike.size() && output.is_same(alike[i]);
    if (!is_alike && (output.dtype() != expected || !(output.shape() == shape))) {
      throw ValueError(fmt::format("output {}{} must be {} {}, it is {} {}", i, where(position),
                                   to_string(expected), shape.to_string(),
                                   to_string(output.dtype()), output.shape().to_string()));
    }
    if (output.is_read_only()) throw_read_only(i, output, position);
  }
}

void require_sparse_reducible(ReduceOp op, const PerReplica& value,
                              const Destinations& destinations, BatchPosition position) {
  if (op != ReduceOp::SUM && op != ReduceOp::MEAN) {
    throw ValueError(
        fmt::format("sparse values have SUM and MEAN, not {}{}", to_string(op), where(position)));
  }
  if (destinations.outputs() != nullptr) {
    throw ValueError(fmt::format(
        "sparse values have no in-place form: the number of rows of the result is the sum of the "
        "inputs'{}",
        where(position)));
  }
  require_concatenable(value.slices());
  const DType dtype = value.dtype();
  if (dtype == DType::BOOL || (op == ReduceOp::MEAN && is_integer(dtype))) {
    throw ValueError(fmt::format("{} of sparse {} values is not defined{}", to_string(op),
                                 to_string(dtype), where(position)));
  }
}

struct Interval {
  const char* begin = nullptr;
  const char* end = nullptr;
  std::size_t value = 0;
  const Tensor* tensor = nullptr;
};

Interval interval_of(const Tensor& tensor, std::size_t value) {
  const auto* begin = static_cast<const char*>(tensor.data());
  return {begin, begin + tensor.size_bytes(), value, &tensor};
}

bool intersect(const Interval& a, const Interval& b) { return a.begin < b.end && b.begin < a.end; }

bool is_in_place(const Interval& output, const Interval& input) {
  return output.begin == input.begin && output.end == input.end && output.value == input.value &&
         output.tensor->dtype() == input.tensor->dtype();
}

[[noreturn]] void throw_overlap(const Interval& output, const Interval& other, const char* what) {
  throw ValueError(fmt::format(
      "buffers overlap: output {} and {} {} share memory but are not the same buffer of one value",
      output.tensor->to_string(), what, other.tensor->to_string()));
}

void require_outputs_disjoint(std::vector<Interval>& outputs) {
  std::sort(outputs.begin(), outputs.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < outputs.size(); ++i) {
    if (intersect(outputs[i - 1], outputs[i])) throw_overlap(outputs[i - 1], outputs[i], "output");
  }
}

/// `outputs` is sorted and disjoint. Returns whether the input is one of them.
bool require_input_fits(const Interval& input, const std::vector<Interval>& outputs) {
  auto it = std::upper_bound(
      outputs.begin(), outputs.end(), input.begin,
      [](const char* begin, const Interval& output) { return begin < output.end; });
  bool in_place = false;
  for (; it != outputs.end() && it->begin < input.end; ++it) {
    if (!is_in_place(*it, input)) throw_overlap(*it, input, "input");
    in_place = true;
  }
  return in_place;
}

}  // namespace

void require_reducible(ReduceOp op, const PerReplica& value, const Destinations& destinations,
                       BatchPosition position) {
  if (op > ReduceOp::PROD) {
    throw ValueError(fmt::format("{} is no ReduceOp", static_cast<int>(op)));
  }
  require_components(value, position);
  require_destinations(destinations, value.devices());
  if (value.is_sparse()) {
    require_sparse_reducible(op, value, destinations, position);
    return;
  }
  const Tensor& first = value.values()[0];
  for (std::size_t i = 1; i < value.size(); ++i) {
    const Tensor& other = value.values()[i];
    if (other.dtype() != first.dtype() || !(other.shape() == first.shape())) {
      throw_gradients_differ(first, i, other, position);
    }
  }
  if (!is_supported(op, first.dtype())) {
    throw ValueError(fmt::format("{} of {} is not defined{}", to_string(op),
                                 to_string(first.dtype()), where(position)));
  }
  const DType result = result_dtype(op, first.dtype());
  const DistributedValues* outputs = destinations.outputs();
  if (outputs != nullptr && result != first.dtype() && outputs->dtype() == first.dtype()) {
    throw ValueError(fmt::format("an in-place {} of {} cannot be: its result is {}{}",
                                 to_string(op), to_string(first.dtype()), to_string(result),
                                 where(position)));
  }
  if (outputs == &value) return require_writable(value, position);
  // Inputs are alike, and an output in place is one of them.
  const bool keeps_dtype = result == first.dtype();
  require_outputs(destinations, result, first.shape(), position,
                  keeps_dtype ? value.values() : std::span<const Tensor>());
}

Shape require_gatherable(const PerReplica& value, const Destinations& destinations, int axis,
                         GatherScope scope) {
  require_components(value, {});
  require_destinations(destinations);
  if (value.is_sparse()) throw UnimplementedError("gather of IndexedSlices is not supported");
  const Tensor& first = value.values()[0];
  const std::size_t rank = first.shape().rank();
  if (rank == 0) throw ValueError("gather needs tensors of rank 1 or more, not scalars");
  if (axis < 0 || static_cast<std::size_t>(axis) >= rank) {
    throw ValueError(fmt::format("gather: axis {} is outside [0, {})", axis, rank));
  }
  const auto along = static_cast<std::size_t>(axis);
  std::vector<std::int64_t> dims(first.shape().dims().begin(), first.shape().dims().end());
  for (std::size_t i = 1; i < value.size(); ++i) {
    const Tensor& other = value.values()[i];
    bool same = other.dtype() == first.dtype() && other.shape().rank() == rank;
    for (std::size_t d = 0; same && d < rank; ++d) same = d == along || other.shape()[d] == dims[d];
    if (!same) {
      throw ValueError(
          fmt::format("gather along axis {}: Shape mismatch: replica 0 {} {}, replica {} {} {}",
                      axis, to_string(first.dtype()), first.shape().to_string(), i,
                      to_string(other.dtype()), other.shape().to_string()));
    }
    dims[along] = checked_add(dims[along], other.shape()[along]);
  }
  const DistributedValues* const outputs = destinations.outputs();
  if (scope == GatherScope::ALL_WORKERS && outputs != nullptr && !outputs->is_sparse() &&
      outputs->shape().rank() == rank) {
    dims[along] = std::max(dims[along], outputs->shape()[along]);
  }
  Shape shape{std::span<const std::int64_t>(dims)};
  require_outputs(destinations, first.dtype(), shape, {});
  return shape;
}

void require_broadcastable(const Tensor& tensor, const Destinations& destinations) {
  if (!tensor) throw ValueError("broadcast needs a tensor");
  tensor.device().require_present();
  require_destinations(destinations);
  require_outputs(destinations, tensor.dtype(), tensor.shape(), {});
}

bool require_no_overlaps(const PerReplica& value, const Destinations& destinations) {
  const DistributedValues* outputs = destinations.outputs();
  if (outputs == nullptr) return false;
  const std::span<const Tensor> out = outputs->values();
  const std::span<const Tensor> in = value.values();
  if (out.size() == 1 && in.size() == 1 && out[0].is_same(in[0])) return out[0].size_bytes() > 0;
  constexpr std::size_t kFew = 16;
  if (value.size() > kFew || outputs->size() > kFew) {
    const ValueDestinationPair pair{value, destinations};
    return require_no_overlaps(std::span<const ValueDestinationPair>(&pair, 1));
  }
  bool in_place = false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Interval output = interval_of(out[i], 0);
    for (std::size_t j = i + 1; j < out.size(); ++j) {
      const Interval other = interval_of(out[j], 0);
      if (intersect(output, other)) throw_overlap(output, other, "output");
    }
    for (const Tensor& tensor : in) {
      const Interval input = interval_of(tensor, 0);
      if (!intersect(output, input)) continue;
      if (!is_in_place(output, input)) throw_overlap(output, input, "input");
      in_place = true;
    }
  }
  return in_place;
}

bool require_no_overlaps(std::span<const ValueDestinationPair> pairs) {
  const ScratchLease<std::vector<Interval>> lease;
  std::vector<Interval>& outputs = *lease;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i].destinations.outputs() == nullptr) continue;
    for (const Tensor& tensor : pairs[i].destinations.outputs()->values()) {
      if (tensor.size_bytes() > 0) outputs.push_back(interval_of(tensor, i));
    }
  }
  if (outputs.empty()) return false;
  require_outputs_disjoint(outputs);
  bool in_place = false;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const std::span<const Tensor> in = pairs[i].value.values();
    const DistributedValues* const to = pairs[i].destinations.outputs();
    const std::span<const Tensor> out = to != nullptr ? to->values() : std::span<const Tensor>();
    for (std::size_t k = 0; k < in.size(); ++k) {
      if (in[k].size_bytes() == 0) continue;
      // An output of its own value overlaps no other, as was just seen.
      const bool is_output = k < out.size() && in[k].is_same(out[k]);
      in_place |= is_output || require_input_fits(interval_of(in[k], i), outputs);
    }
    for (const IndexedSlices& slices : pairs[i].value.slices()) {
      for (const Tensor* tensor : {&slices.values, &slices.indices}) {
        // No value's number: sparse values have no in-place form.
        if (tensor->size_bytes() == 0) continue;
        require_input_fits(interval_of(*tensor, pairs.size()), outputs);
      }
    }
  }
  return in_place;
}

void require_apart(const PerReplica& value, const Destinations& destinations) {
  if (destinations.outputs() == nullptr) return;
  std::vector<Interval> outputs;
  for (const Tensor& tensor : destinations.outputs()->values()) {
    if (tensor.size_bytes() > 0) outputs.push_back(interval_of(tensor, 0));
  }
  require_outputs_disjoint(outputs);
  for (const Tensor& tensor : value.values()) {
    // Another value's number: an input that is exactly an output is refused too.
    if (tensor.size_bytes() > 0) require_input_fits(interval_of(tensor, 1), outputs);
  }
}

ReducibleBatch require_batch_reducible(ReduceOp op, std::span<const ValueDestinationPair> pairs) {
  ReducibleBatch size;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    require_reducible(op, pairs[i].value, pairs[i].destinations, {i, pairs.size()});
    size.size_bytes += component_size_bytes(pairs[i].value);
  }
  size.in_place = require_no_overlaps(pairs);
  return size;
}

void require_implementation(const PerReplica& value, const CommunicationOptions& options) {
  if (options.implementation != CommunicationImplementation::NCCL) return;
  announce_nccl_fallback("CommunicationOptions::implementation NCCL", value.devices());
}

void require_implementation(std::span<const ValueDestinationPair> pairs,
                            const CommunicationOptions& options) {
  const Devices* previous = nullptr;
  for (const ValueDestinationPair& pair : pairs) {
    const Devices& devices = pair.value.devices();
    if (previous == nullptr || !(*previous == devices)) require_implementation(pair.value, options);
    previous = &devices;
  }
}

void wait_until_ready(const PerReplica& value, const Destinations& destinations) {
  for (const Tensor& tensor : value.values()) tensor.readiness().wait();
  for (const IndexedSlices& slices : value.slices()) {
    slices.values.readiness().wait();
    slices.indices.readiness().wait();
  }
  const DistributedValues* const outputs = destinations.outputs();
  if (outputs == nullptr || outputs == &value) return;
  for (const Tensor& tensor : outputs->values()) tensor.readiness().wait();
}

std::size_t component_size_bytes(const DistributedValues& value) {
  if (value.is_sparse()) return value.slices()[0].values.size_bytes();
  return value.values()[0].size_bytes();
}

}  // namespace crossdevice::detail
