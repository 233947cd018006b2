// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/collective_checks.h"

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/fingerprint.h"

namespace crossdevice::detail {

void require_root(int root, std::size_t num_ranks) {
  if (root >= 0 && static_cast<std::size_t>(root) < num_ranks) return;
  throw ValueError(fmt::format("root {} is outside [0, {})", root, num_ranks));
}

void require_reducible(ReduceOp op, DType dtype) {
  if (is_supported(op, dtype)) return;
  throw ValueError(fmt::format("{} of {} is not defined", to_string(op), to_string(dtype)));
}

void require_divisible(const Tensor& input, std::size_t num_ranks) {
  if (input.num_elements() % num_ranks == 0) return;
  throw ValueError(fmt::format("{} elements cannot be scattered to {} ranks in equal parts",
                               input.num_elements(), num_ranks));
}

void require_output(const char* what, const Tensor& output, DType dtype, std::size_t count) {
  if (output.dtype() != dtype || output.num_elements() != count) {
    throw ValueError(fmt::format("the output of {} must have {} elements of {}, not {} of {}", what,
                                 count, to_string(dtype), output.num_elements(),
                                 to_string(output.dtype())));
  }
  if (output.is_read_only()) throw ValueError(fmt::format("the output of {} is read-only", what));
}

void require_own_place(const char* what, const Tensor& part, const Tensor& whole, int rank) {
  if (!overlaps(part, whole)) return;
  const auto* const begin = static_cast<const std::byte*>(whole.data());
  if (part.data() == begin + static_cast<std::size_t>(rank) * part.size_bytes()) return;
  throw ValueError(fmt::format(
      "the input and the output of {} overlap, but not so that one is rank {}'s part of the other",
      what, rank));
}

void require_same_or_apart(const char* what, const Tensor& input, const Tensor& output) {
  if (!overlaps(input, output)) return;
  if (input.data() == output.data() && input.size_bytes() == output.size_bytes()) return;
  throw ValueError(
      fmt::format("the input and the output of {} overlap, but are not the same memory", what));
}

GroupOperationInfo operation_of(const CollectiveRequest& request,
                                std::span<const CollectiveValue> values, const BatchSize& size) {
  return {.kind = request.kind,
          .reduce_op = request.op,
          .dtype = values[0].inputs[0].dtype(),
          .num_values = values.size(),
          .size_bytes = size.size_bytes,
          .fingerprint = size.fingerprint,
          .sequence = request.sequence};
}

GroupOperationInfo operation_of(const CollectiveRequest& request, const Tensor& tensor, int root) {
  Fingerprint fingerprint;
  fingerprint.add(static_cast<std::uint64_t>(root) << 1U | (request.deterministic ? 1U : 0U));
  fingerprint.add(tensor.num_elements());
  fingerprint.add(request.fingerprint);
  return {.kind = request.kind,
          .reduce_op = request.op,
          .dtype = tensor.dtype(),
          .num_values = 1,
          .size_bytes = tensor.size_bytes(),
          .fingerprint = fingerprint.value(),
          .sequence = request.sequence};
}

}  // namespace crossdevice::detail
