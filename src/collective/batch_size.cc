// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/batch_size.h"

#include <algorithm>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/fingerprint.h"

#include "collective/detail/collective_checks.h"
#include "collective/detail/inline_batch.h"

namespace crossdevice::detail {

namespace {

[[noreturn]] void throw_unequal_numbers(std::size_t first, std::size_t other) {
  throw ValueError(fmt::format(
      "all values of a batch have equally many inputs, at least one, not {} and {}", first, other));
}

[[noreturn]] void throw_unlike(const Tensor& first, const Tensor& other) {
  throw ValueError(fmt::format(
      "the inputs of one value are alike, not {} elements of {} and {} of {}", first.num_elements(),
      to_string(first.dtype()), other.num_elements(), to_string(other.dtype())));
}

void require_value(ReduceOp op, const CollectiveValue& value) {
  const Tensor& first = value.inputs[0];
  if (!is_supported(op, first.dtype())) require_reducible(op, first.dtype());
  for (const Tensor& input : value.inputs.subspan(1)) {
    if (input.dtype() != first.dtype() || input.num_elements() != first.num_elements()) {
      throw_unlike(first, input);
    }
  }
  const DType result = result_dtype(op, first.dtype());
  for (const Tensor& output : value.outputs) {
    require_output("all_reduce", output, result, first.num_elements());
  }
}

}  // namespace

BatchSize require_batch(const CollectiveRequest& request, std::span<const CollectiveValue> values) {
  BatchSize size;
  Fingerprint fingerprint;
  fingerprint.add(request.fingerprint,
                  (request.deterministic ? 1U : 0U) | (request.grouping_independent ? 2U : 0U));
  for (const CollectiveValue& value : values) {
    if (value.inputs.empty() || value.inputs.size() != values[0].inputs.size()) {
      throw_unequal_numbers(values[0].inputs.size(), value.inputs.size());
    }
    require_value(request.op, value);
    const Tensor& first = value.inputs[0];
    fingerprint.add(static_cast<std::uint64_t>(first.dtype()), value.inputs.size(),
                    first.num_elements(), value.outputs.size());
    size.size_bytes += first.size_bytes();
    size.inline_bytes += value.inputs.size() * inline_bytes_of(first);
    size.num_tensors += value.inputs.size() + value.outputs.size();
  }
  size.fingerprint = fingerprint.value();
  return size;
}

bool is_in_place(std::span<const CollectiveValue> values) {
  return std::any_of(values.begin(), values.end(), [](const CollectiveValue& value) {
    return std::any_of(value.outputs.begin(), value.outputs.end(), [&value](const Tensor& output) {
      return std::any_of(value.inputs.begin(), value.inputs.end(),
                         [&](const Tensor& input) { return output.data() == input.data(); });
    });
  });
}

}  // namespace crossdevice::detail
